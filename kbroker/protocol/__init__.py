"""Messages of the control plane: API keys, header versions, requests in, responses out."""

from kbroker.protocol.answered import Answered
from kbroker.protocol.api_keys import ApiKey, request_header_version, response_header_version
from kbroker.protocol.decode import MalformedRequestError, decode_request
from kbroker.protocol.encode import encode_response

__all__ = [
    "Answered",
    "ApiKey",
    "MalformedRequestError",
    "decode_request",
    "encode_response",
    "request_header_version",
    "response_header_version",
]

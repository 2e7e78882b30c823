"""Texts of `sasl.jaas.config`: kbroker's parser against Kafka's in a JVM."""

from __future__ import annotations

import random

from kbroker.jaas import parse_jaas
from tests.support.tool_jvm import program_output

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
WRITTEN = (
    f"{MODULE} required username='$ConnectionString' password='Endpoint=sb://a.net/;Key=a/b+c=';",
    f'{MODULE} required "user_alice@corp"="a" user_bob=b;',
    f'/* of the vault */ {MODULE} required // first\n username="a"\t/* ; */password="b\\tc" ;\n',
    f'{MODULE} required password="\\101\\1018\\477\\0\\"\\\\\\q\\n";',
    f'{MODULE} REQUIRED\r\n username="a"\r\n password="b";\r\n',
    f"{MODULE} Sufficient a=b a=c;",
    f"{MODULE} requisite;",
    f'"{MODULE}" "optional" é=ü 名=字 a-b.c_d$=e-f.g;',
    f"{MODULE} required a=1;",
    f"{MODULE} required a=1b;",
    f"{MODULE} required a=-b;",
    f"{MODULE} required a=b@c;",
    f"{MODULE} required a=b/c;\n;",
    f'{MODULE} required a="b;',
    f'{MODULE} required a="b\n;',
    f'{MODULE} required a="b\\\n";',
    f"{MODULE} required a=b; {MODULE} required;",
    f"{MODULE} required a=b;;",
    f"{MODULE} required a=;",
    f"{MODULE} required a b;",
    f"{MODULE} required a=b",
    f"{MODULE} needed;",
    f"{MODULE}",
    f"{MODULE} required /* a=b;",
    f"{MODULE} required; /* and no end",
    f'{MODULE} required a="b\\',
    '"" required;',
    "1 required;",
    "",
    " ",
    "// none",
)
PIECES = (
    *"ab_$-.019 ;=/*\"'\\\t\n\r\0@é\x7f\x85\xa0名😀", "=", "=", ";", " ", '"', "'", "\\t", "\\07",
    "//", "/*", "*/", " a=b ", ' "c"=', "'d'", "required",
)  # fmt: skip


def random_text(chosen: random.Random) -> str:
    pieces = "".join(chosen.choice(PIECES) for _ in range(chosen.randint(0, 12)))
    if chosen.random() < 0.1:
        return pieces
    return f"M required a={chosen.choice(('', chr(34), chr(39)))}{pieces};"


def hex_of(text: str) -> str:
    return text.encode("utf-16-be").hex()


def own(text: str) -> str:
    try:
        module, options = parse_jaas(text)
    except ValueError:
        return "refused"
    keys = sorted(options, key=lambda key: key.encode("utf-16-be"))
    words = [module, *(word for key in keys for word in (key, options[key]))]
    return " ".join(f"x{hex_of(word)}" for word in words)


def test_jaas_texts_mean_what_they_mean_in_java() -> None:
    chosen = random.Random(42)
    texts = [*WRITTEN, *(random_text(chosen) for _ in range(20000))]
    output = program_output("Jaas", stdin="".join(f"{hex_of(text)}\n" for text in texts))
    by_java = output.split("\n")[:-1]
    assert len(by_java) == len(texts)
    # An option whose name is a number is kept by Java under no name at all, where nothing reads it.
    pairs = [(text, java) for text, java in zip(texts, by_java, strict=True) if java != "nameless"]
    assert [(text, own(text)) for text, _ in pairs] == pairs
    read = sum(java != "refused" for _, java in pairs)
    assert 1000 < read < len(texts) - 1000

"""The transaction coordinator: a value for each transactional id, a fold of `__transaction_state`.

Floors, lowest first: `transaction` (the value), `steps` (what a request makes of it), `records`,
`settings`, `durable`, `markers`, `slot`, `loading`, `doubt`, `coordinator`. All of it is the
control thread's.
"""

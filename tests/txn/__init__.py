"""What transactions promise, proved at several distances.

- `test_model.py`: a simulation in one process, with real logs and coordinators, a clock and a disk
  that the test moves; `model` says what a reader may see at each moment, `canaries` break things.

    python -m tests.txn [SEED [STEPS]]

- `test_fault_points.py`: a broker that ends right before and right after each durable step.
- `test_bank.py`: accounts whose sum never changes, under kills of the broker and of its clients.
- `test_copies.py`: messages copied by a group under such kills: of each exactly one copy.
- `test_exhaustion.py`: epochs that run out under producers that make no pause.
- `test_streams.py`: Kafka Streams, exactly_once_v2, counts exactly while broker and application
  are killed.
- `test_zombies.py`: a member that stands still in a transaction until the group has replaced it.
"""

"""Prints the draws of CPython's random that tests/unit/tasks/test_ruler.c holds as numbers (any CPython 3.2 or later)."""
import random
import uuid

r = random.Random(42)
print("bits", [r.getrandbits(32) for _ in range(3)], "below", [r.randrange(6175260) for _ in range(3)])
r = random.Random(42)
print("uuid", uuid.UUID(int=r.getrandbits(128), version=4), "letters", "".join(r.choices("abcdefghijklmnopqrstuvwxyz", k=6)))
numbers = list(range(10))
random.Random(42).shuffle(numbers)
print("shuffle", numbers)
for n, k in ((40, 4), (1000, 6), (85, 6), (86, 6)):  # 85 is the largest pool for 6
    print("sample", n, k, random.Random(42).sample(range(n), k))
print("seed above 2^32", random.Random(2**40 + 7).getrandbits(32))

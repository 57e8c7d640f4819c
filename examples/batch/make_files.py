# Makes files to work on: python3 make_files.py [DIR] [COUNT]. The same names and texts each time.
import pathlib
import random
import sys

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "files")
count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
chance = random.Random(1)
WORDS = "durable job queue worker attempt lease retry batch line row".split()

folder.mkdir(parents=True, exist_ok=True)
for number in range(1, count + 1):
    lines = (" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(chance.randint(1, 200)))
    (folder / f"file-{number:05}.txt").write_text("\n".join(lines) + "\n")
print(f"{count} files in {folder}")

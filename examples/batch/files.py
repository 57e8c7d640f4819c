# One task for a batch: what is there to know of a file. Run it with the commands in README.md.
import hashlib

from rea.task import task


@task(timeout=120)
def inspect(path):
    digest, lines, words, size = hashlib.sha256(), 0, 0, 0
    with open(path, "rb") as file:
        for line in file:
            digest.update(line)
            lines += 1
            words += len(line.split())
            size += len(line)
    return {"path": path, "sha256": digest.hexdigest(), "lines": lines, "words": words, "bytes": size}

# The nightly collection: at 02:00 fetch the day's sales, clean them, report. When cleaning fails there is
# no report but an alert, and the chain is run again from its start, three times in all. Start it with `rea
# serve nightly.py`.
import csv
import os
import urllib.request
import uuid
from pathlib import Path

import rea
from rea.task import task

FOLDER = Path(os.environ.get("NIGHTLY_DIR", "nightly-data"))
SOURCE = os.environ.get("NIGHTLY_SOURCE", Path(__file__).with_name("sales.csv").resolve().as_uri())


@task(retry_on=OSError, retry_base=5)  # URLError is an OSError: the network may come back
def fetch():
    """Loads the file and returns its path: between the nodes goes little, data stays in files."""
    path = FOLDER / f"{rea.current_job().task_id}.csv"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(SOURCE, timeout=30) as answer:
        path.write_bytes(answer.read())
    return str(path)


@task
def clean(path):
    """Sums by city. The last line of the file counts those before it, so that a part is noticed."""
    with open(path, newline="", encoding="utf-8") as file:
        *rows, last = list(csv.reader(file)) or [[]]
    if last[:1] != ["rows"] or int(last[1]) != len(rows):
        raise ValueError(f"{path} is cut off: it has {len(rows)} rows, and no last line that says so")
    sums = {}
    for city, amount in rows:
        sums[city.strip().title()] = sums.get(city.strip().title(), 0) + int(amount)
    return sums


@task
def report(sums):
    lines = [f"{city}: {amount}" for city, amount in sorted(sums.items())]
    (FOLDER / "report.txt").write_text("\n".join([*lines, f"total: {sum(sums.values())}", ""]))
    return sum(sums.values())


@task
def alert(text):
    """A mail or a message, in earnest."""
    with open(FOLDER / "alerts.txt", "a") as file:
        file.write(f"{text} ({rea.current_job().root_id})\n")


@task(schedule="0 2 * * *", timezone="Asia/Shanghai")
def nightly():
    # Should this job be run twice, its second attempt finds the flow of the first.
    flow_id = uuid.uuid5(uuid.UUID(rea.current_job().task_id), "nightly")
    with rea.flow("nightly", max_attempts=3, retry="all", flow_id=flow_id) as flow:
        cleaned = clean(fetch())
        report(cleaned)
        alert("cleaning failed", depends_on=cleaned, on_failure=True)
    return flow.id

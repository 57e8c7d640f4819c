# `rea schedule next` against an independent reckoning: every minute of the days around each change of the
# clocks, by Python's zoneinfo. Only numbers, lists, ranges and steps are read here.
import json
import subprocess
import sys
import unittest
from collections import defaultdict
from datetime import datetime, timedelta, timezone

import support

try:
    from zoneinfo import ZoneInfo

    ZoneInfo("Australia/Lord_Howe")
except Exception:  # no module before 3.9, no data on some machines
    ZoneInfo = None

MINUTE = timedelta(minutes=1)
# Half an hour, a day that is left out, changes that come and go, midnight gaps, a winter time, odd offsets, none;
# with days on which the clocks change there, and one on which they don't.
ZONES = {
    "Australia/Lord_Howe": ["2025-04-05", "2025-10-04", "2026-06-01"],
    "Pacific/Apia": ["2011-12-30", "2011-09-24", "2026-06-01"],
    "Africa/Cairo": ["2014-05-15", "2014-09-26", "2023-04-28", "2026-06-01"],
    "America/Santiago": ["2025-04-06", "2025-09-07"],
    "Europe/Dublin": ["2025-10-26", "2026-03-29"],
    "Pacific/Chatham": ["2025-04-05", "2025-09-27"],
    "America/New_York": ["2025-03-09", "2025-11-02"],
    "Asia/Shanghai": ["2025-11-02", "1991-09-15"],
}
RULES = [
    "0 2 * * *",
    "15,45 1-3 * * *",
    "0 0 * * *",
    "30 23 * * 0",
    "5 0-23/2 * * *",
    "0 * * * *",
    "*/15 * * * *",
    "*/20 2 * * *",
    "10 */3 * * *",
    "0 12 1 * 5",
]


def numbers(field, low, high):
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, last = (low, high) if span == "*" else ([int(n) for n in span.split("-")] * 2)[:2]
        found.update(range(first, last + 1, int(step or 1)))
    return found


class Reckoning:
    def __init__(self, rule):
        minute, hour, day, month, weekday = rule.split()
        self.minute, self.hour = numbers(minute, 0, 59), numbers(hour, 0, 23)
        self.day, self.month = numbers(day, 1, 31), numbers(month, 1, 12)
        self.weekday = {n % 7 for n in numbers(weekday, 0, 7)}
        self.either = day != "*" and weekday != "*"
        self.fixed = not minute.startswith("*") and not hour.startswith("*")

    def matches(self, t):
        day, weekday = t.day in self.day, t.isoweekday() % 7 in self.weekday
        on_day = (day or weekday) if self.either else (day and weekday)
        return t.minute in self.minute and t.hour in self.hour and t.month in self.month and on_day

    def fires(self, days):
        """Instants from the beginning of the days (not with it) to their end, in UTC."""
        if not self.fixed:
            found = {moment for clock, moment in days.order if self.matches(clock)}
        else:
            found = {at for clock, at in days.times_of_day if self.matches(clock)}
        return sorted(moment for moment in found if days.begin < moment <= days.end)


class Days:
    """What the clocks of a zone show in each minute of some days, and when each time of day is."""

    def __init__(self, zone, begin, end):
        self.begin, self.end = begin, end
        shown = defaultdict(list)  # what the clocks show -> when
        self.order = []
        moment = begin - timedelta(days=2)
        while moment <= end + timedelta(days=2):
            clock = moment.astimezone(zone).replace(tzinfo=None)
            self.order.append((clock, moment))
            shown[clock].append(moment)
            moment += MINUTE
        self.times_of_day = []
        clock, last, latest = self.order[0][0], self.order[-1][0], None
        while clock <= last:
            if clock in shown:
                latest = max(shown[clock])
                self.times_of_day.append((clock, shown[clock][0]))
            elif latest:  # left out: the first minute whose clocks show something later
                self.times_of_day.append((clock, latest + MINUTE))
            clock += MINUTE


def said_by_rea(rule, zone, begin, end):
    command = [support.find_program(), "schedule", "next", rule, "--tz", zone, "-n", "400", "--json"]
    command += ["--from", begin.strftime("%Y-%m-%dT%H:%M:%SZ")]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    fires = [datetime.strptime(f["at"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc) for f in said["fires"]]
    return said["kind"], [fire for fire in fires if fire <= end]


@unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
@unittest.skipUnless(ZoneInfo, "this Python has no time zone data")
@unittest.skipUnless(sys.version_info >= (3, 9), "needs zoneinfo")
class NextFires(unittest.TestCase):
    def test_they_agree_on_every_minute_around_every_change(self):
        """C043, C044, C045."""
        compared = 0
        for zone, around in ZONES.items():
            for day in around:
                middle = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=timezone.utc)
                begin, end = middle - timedelta(days=1, hours=12), middle + timedelta(days=1, hours=12)
                days = Days(ZoneInfo(zone), begin, end)
                for rule in RULES:
                    reckoning = Reckoning(rule)
                    kind, fires = said_by_rea(rule, zone, begin, end)
                    with self.subTest(zone=zone, rule=rule, day=day):
                        self.assertEqual(kind == "fixed", reckoning.fixed)
                        self.assertEqual(fires, reckoning.fires(days))
                    compared += len(fires)
        self.assertGreater(compared, 9_000)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""A plain event-driven simulator of identical processors, to measure ours against.

It is written the way one writes such a simulator first: jobs are objects, the waiting jobs are sorted by the policy's key at
every event, the head of the queue gets a reservation computed from the running jobs, and the others are tried in order. It knows
the same orders as ours (fcfs, sjf, saf, f1), with and without EASY backfill. Input: a trace in the standard workload format.
Output: one line of JSON with the mean bounded slowdown, the mean wait, and the processor seconds of the simulation itself
(reading the trace is not counted).

    python3 easy.py TRACE PROCESSORS ORDER none|easy
"""

import heapq
import json
import math
import sys
import time
from dataclasses import dataclass


@dataclass
class Job:
    id: int
    submit: int
    run: int
    width: int
    estimate: int
    start: int = -1


ORDERS = {
    "fcfs": lambda j: (j.submit, j.id),
    "sjf": lambda j: (j.estimate, j.submit, j.id),
    "saf": lambda j: (j.estimate * j.width, j.submit, j.id),
    "f1": lambda j: (math.log10(j.estimate) * j.width + 870 * math.log10(max(j.submit, 1)), j.submit, j.id),
}


def read(path):
    jobs = []
    with open(path) as f:
        for line in f:
            if line.startswith(";") or not line.strip():
                continue
            v = line.split()
            jobs.append(Job(int(v[0]), int(v[1]), int(v[3]), max(int(v[4]), int(v[7])), int(v[8])))
    return jobs


class Simulator:
    def __init__(self, jobs, procs, order, backfill):
        self.jobs = jobs
        self.free = procs
        self.order = ORDERS[order]
        self.backfill = backfill == "easy"
        self.queue = []
        self.running = []
        self.ends = []
        self.now = 0

    def start(self, job):
        job.start = self.now
        self.free -= job.width
        self.running.append(job)
        heapq.heappush(self.ends, (self.now + job.run, job.id, job))
        self.queue.remove(job)

    def reservation(self, head):
        """When the head's processors are free at the latest, and how many are left over then."""
        avail, shadow = self.free, self.now
        for job in sorted(self.running, key=lambda j: j.start + j.estimate):
            end = job.start + job.estimate
            if avail >= head.width and end > shadow:
                break
            avail += job.width
            shadow = max(end, self.now)
        return shadow, avail - head.width

    def schedule(self):
        self.queue.sort(key=self.order)
        while self.queue and self.queue[0].width <= self.free:
            self.start(self.queue[0])
        if not self.queue or not self.backfill:
            return
        shadow, extra = self.reservation(self.queue[0])
        for job in self.queue[1:]:
            if job.width > self.free:
                continue
            if self.now + job.estimate <= shadow:
                self.start(job)
            elif job.width <= extra:
                extra -= job.width
                self.start(job)

    def simulate(self):
        arrivals = iter(self.jobs)
        job = next(arrivals, None)
        while job is not None or self.ends:
            self.now = min(job.submit if job else math.inf, self.ends[0][0] if self.ends else math.inf)
            while self.ends and self.ends[0][0] == self.now:
                done = heapq.heappop(self.ends)[2]
                self.running.remove(done)
                self.free += done.width
            while job is not None and job.submit == self.now:
                self.queue.append(job)
                job = next(arrivals, None)
            self.schedule()


def main():
    jobs = read(sys.argv[1])
    simulator = Simulator(jobs, int(sys.argv[2]), sys.argv[3], sys.argv[4])
    begin = time.process_time()
    simulator.simulate()
    seconds = time.process_time() - begin
    slow = wait = 0.0
    for j in jobs:
        w = j.start - j.submit
        wait += w
        slow += max(1.0, (w + j.run) / max(j.run, 10))
    print(json.dumps({"jobs": len(jobs), "bsld": slow / len(jobs), "wait": wait / len(jobs), "seconds": seconds}))


if __name__ == "__main__":
    main()

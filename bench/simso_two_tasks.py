# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The two-task set of `make bench` in SimSo: 3 ms every 10 ms and 4 ms every 14 ms, one CPU, earliest deadline first.

Prints one JSON line: CPU seconds that simulating took, jobs finished, simulated milliseconds (the argument).
"""
import json
import sys
import time

from simso.configuration import Configuration
from simso.core import Model

milliseconds = int(sys.argv[1])
configuration = Configuration()
configuration.duration = milliseconds * configuration.cycles_per_ms
configuration.add_task(name="p10", identifier=1, period=10, activation_date=0, wcet=3, deadline=10)
configuration.add_task(name="p14", identifier=2, period=14, activation_date=0, wcet=4, deadline=14)
configuration.add_processor(name="CPU", identifier=1)
configuration.scheduler_info.clas = "simso.schedulers.EDF_mono"
configuration.check_all()
model = Model(configuration)
begin = time.process_time()
model.run_model()
cpu_s = time.process_time() - begin
jobs = sum(1 for task in model.results.tasks.values() for job in task.jobs if job.end_date is not None)
print(json.dumps({"case": "simso_two_tasks", "cpu_s": round(cpu_s, 4), "simulated_ns": milliseconds * 10**6, "jobs": jobs}))

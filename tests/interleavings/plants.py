"""Plants: the faults that the harness must find, one for each line that waiting and waking depend on.

Each was found as this table says. Where the source changes, the text of a plant has to follow; where a line
goes, its plant goes.
"""

from __future__ import annotations

from .faults import Kind
from .planting import Plant

__all__ = ["PLANTS"]

_LOST, _TIME, _SPIN, _DOUBLE = Kind.LOST_WAKE_UP, Kind.MISSED_TIME, Kind.SPIN, Kind.DOUBLE_WAKE_UP
_EARLY, _WRONG, _HANG, _LEAK, _ERROR = Kind.PREMATURE_END, Kind.WRONG_RESULT, Kind.HANG, Kind.LEAK, Kind.ERROR

_ENGINE = "penstock._runtime.scheduling.engine"
_WAITING = "penstock._runtime.scheduling.waiting"
_WORKERS = "penstock._runtime.scheduling.workers"
_PARKER = "penstock._runtime.scheduling.parker"
_QUEUE = "penstock._runtime.messages.queue"

PLANTS = [
    # Announcements.
    Plant(
        "an announcement looks for a parked worker before it is in the inbox",
        _ENGINE,
        "        self.inbox.append(node)\n        self.waiting.announced(node.ready_queue)\n",
        "        self.waiting.announced(node.ready_queue)\n        self.inbox.append(node)\n",
        "event-1",
        (_LOST,),
    ),
    Plant(
        "an announcement wakes nobody",
        _ENGINE,
        "        self.waiting.announced(node.ready_queue)\n",
        "",
        "event-1",
        (_LOST,),
    ),
    Plant(
        "a worker that parks does not look at the inbox again",
        _WAITING,
        "            if engine.inbox:\n                pass\n            elif lock is None:\n",
        "            if lock is None:\n",
        "event-1",
        (_LOST,),
    ),
    Plant(
        "a worker is listed as parked only after it looked at the inbox",
        _WAITING,
        "        if parker.deadline is None:\n            ready_queue.parked.append(parker)\n        else:\n"
        "            ready_queue.parked.insert(0, parker)  # so that it is woken last\n"
        "        woken = False\n        try:\n            if engine.inbox:\n",
        "        full = bool(engine.inbox)\n        ready_queue.parked.append(parker)\n"
        "        woken = False\n        try:\n            if full:\n",
        "event-1",
        (_LOST,),
    ),
    Plant(
        "a worker that was woken is counted as waking for ever",
        _WAITING,
        "            if woken:\n                self.waking.pop(parker, None)\n",
        "            if woken:\n                pass\n",
        "event-1",
        (_LOST, _LEAK),
    ),
    Plant(
        "an announcement wakes a worker of its queue and one of each other",
        _WAITING,
        "            if self._wake_one(ready_queue):\n                return\n        for",
        "            self._wake_one(ready_queue)\n        for",
        "event-3",
        (_SPIN,),
    ),
    Plant(
        "the time was moved and the workers with a deadline are not told",
        _ENGINE,
        "        self.waiting.time_moved()\n",
        "",
        "scale-2",
        (_TIME,),
    ),
    Plant(
        "the time was moved and a worker is woken that is awake already",
        _WAITING,
        "                        continue  # it was woken just now\n",
        "                        pass\n",
        "scale-2",
        (_DOUBLE, _LEAK, _LOST),
    ),
    # Work.
    Plant(
        "ready work wakes nobody",
        _WAITING,
        "            if not ready_queue.parked or not (ready_queue.now or ready_queue.later):\n",
        "            if True:\n",
        "slow-chain-2",
        (_LOST,),
    ),
    Plant(
        "room that a receive makes wakes nobody",
        _ENGINE,
        "            self.waiting.wake_others(queue.consumer.ready_queue, computes=True)\n",
        "            pass\n",
        "slow-chain-2",
        (_LOST,),
    ),
    Plant(
        "the worker on standby never gives up on a quick compute",
        _WAITING,
        "            if node is ready_queue.quick and (node is None or node.remaining == remaining):\n",
        "            if False:\n",
        "uneven-2",
        (_LOST,),
    ),
    Plant(
        "the worker on standby gives up and leaves the queue closed",
        _ENGINE,
        "            ready_queue.quick = None\n            for queue in node.inputs:\n",
        "            for queue in node.inputs:\n",
        "uneven-2",
        (_LOST, _SPIN, Kind.LIVELOCK),
    ),
    Plant(
        "the worker that overtakes does not tell the producers of room",
        _ENGINE,
        "                update_producers(self, queue)  # its receive did not do this\n",
        "                pass\n",
        "uneven-2",
        (_LOST, _WRONG),
    ),
    Plant(
        "a queue stays closed after a quick compute",
        _WORKERS,
        "                    if ready_queue.quick is node:\n                        ready_queue.quick = None\n",
        "",
        "chain-2",
        (_LOST, _SPIN, _HANG, _LEAK, Kind.LIVELOCK),
    ),
    Plant(
        "a node can be put in its queue twice",
        _ENGINE,
        "        if not node.blockers and not node.busy:\n",
        "        if not node.blockers:\n",
        "event-2",
        (_WRONG,),
    ),
    Plant(
        "nobody knows who is waking",
        _WAITING,
        "        self.waking[parker] = None\n",
        "",
        "fan-3",
        (_SPIN,),
    ),
    # Time.
    Plant(
        "a worker that computes does not care who keeps the time",
        _WAITING,
        "        if computes and engine.timed and not self.waking and engine.clock.passes:\n",
        "        if False:\n",
        "two-beats-2",
        (_TIME, _WRONG),
    ),
    Plant(
        "any deadline will do for the next timer",
        _WAITING,
        "                if deadline is not None and deadline <= until:\n",
        "                if deadline is not None:\n",
        "two-beats-2",
        (_TIME, _WRONG),
    ),
    Plant(
        "every worker keeps the time",
        _WAITING,
        "                    return True\n        return False\n\n    # Waiting.\n",
        "                    return False\n        return False\n\n    # Waiting.\n",
        "two-beats-3",
        (_SPIN,),
    ),
    Plant(
        "nobody keeps the time",
        _WAITING,
        "                    deadline = engine.limit if self._has_timer_worker(until) else until\n",
        "                    deadline = engine.limit\n",
        "periodic-2",
        (_TIME,),
    ),
    Plant(
        "a worker keeps its deadline after it woke up",
        _WAITING,
        "            parker.deadline = None\n        if not woken:\n",
        "        if not woken:\n",
        "loaded-2",
        (_TIME, _WRONG),
    ),
    Plant(
        "workers that find nothing to do wake each other",
        _WORKERS,
        "                    if several:\n"
        "                        waiting.wake_others(ready_queue, computes=False)\n",
        "                    waiting.wake_all()\n",
        "duration-2",
        (_SPIN,),
    ),
    Plant(
        "conditions are not polled while the clock stands still",
        _WAITING,
        "                polls = True\n",
        "                pass\n",
        "polled-manual-1",
        (Kind.LIVELOCK, _HANG, _WRONG),
    ),
    Plant(
        "a worker does not say which time it keeps",
        _WAITING,
        "                        parker.deadline = deadline\n",
        "                        pass\n",
        "two-beats-3",
        (_SPIN,),
    ),
    # Permits.
    Plant(
        "a worker that wakes by its deadline leaves a permit behind",
        _WAITING,
        "            parker.park(None)\n            self.waking.pop(parker, None)\n",
        "            self.waking.pop(parker, None)\n",
        "two-beats-2",
        (_DOUBLE, _LEAK, _ERROR),
    ),
    Plant(
        "a worker is woken and stays on the list of the parked",
        _WAITING,
        "            parker = ready_queue.parked.pop()\n",
        "            parker = ready_queue.parked[-1]\n",
        "slow-chain-2",
        (_DOUBLE,),
    ),
    Plant(
        "a worker is given two permits",
        _WAITING,
        "        self._engine.clock.unpark(parker)\n",
        "        self._engine.clock.unpark(parker)\n        self._engine.clock.unpark(parker)\n",
        "slow-chain-2",
        (_DOUBLE, _ERROR),
    ),
    Plant(
        "a permit is lost",
        _PARKER,
        "        self._permit.release()\n",
        "        pass\n",
        "slow-chain-2",
        (_LOST,),
    ),
    Plant(
        "a worker waits for as long as it likes",
        _PARKER,
        "        return self._permit.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))\n",
        "        return self._permit.acquire()\n",
        "periodic-2",
        (_TIME,),
    ),
    # The end.
    Plant(
        "a stop wakes one worker",
        _WAITING,
        "            while self._wake_one(ready_queue):\n                pass\n",
        "            self._wake_one(ready_queue)\n",
        "stop-3",
        (_LOST,),
    ),
    Plant(
        "a stop wakes nobody",
        _ENGINE,
        "        self.inbox.append(None)\n        self.waiting.wake_all()\n",
        "        self.inbox.append(None)\n",
        "stop-2",
        (_LOST,),
    ),
    Plant(
        "a stop is not in the inbox",
        _ENGINE,
        "        self.inbox.append(None)\n        self.waiting.wake_all()\n",
        "        self.waiting.wake_all()\n",
        "stop-1",
        (_LOST,),
    ),
    Plant(
        "the end wakes nobody",
        _ENGINE,
        "        self.stopping = True\n        self.waiting.wake_all()\n",
        "        self.stopping = True\n",
        "chain-2",
        (_LOST,),
    ),
    Plant(
        "the run ends while a compute runs",
        _WAITING,
        "        if engine.running or engine.has_ready():\n",
        "        if engine.has_ready():\n",
        "slow-chain-2",
        (_EARLY,),
    ),
    Plant(
        "the run ends while something is ready",
        _WAITING,
        "        if engine.running or engine.has_ready():\n",
        "        if engine.running:\n",
        "pools-1",
        (_EARLY,),
    ),
    Plant(
        "the run ends while an event is awaited",
        _WAITING,
        "        if until is not None or engine.outstanding:\n",
        "        if until is not None:\n",
        "event-1",
        (_EARLY,),
    ),
    Plant(
        "the run ends while a timer is set",
        _WAITING,
        "        if until is not None or engine.outstanding:\n",
        "        if engine.outstanding:\n",
        "two-beats-1",
        (_EARLY,),
    ),
    Plant(
        "time jumps to the end of the run while an event is awaited",
        _WAITING,
        "        can_jump = until is not None or not engine.outstanding\n",
        "        can_jump = True\n",
        "event-manual-0",
        (_WRONG,),
    ),
    Plant(
        "a failure ends only the worker it happened on",
        _WORKERS,
        "        engine.errors.append(error)\n        engine.request_stop()\n",
        "        engine.errors.append(error)\n",
        "failure-2",
        (Kind.LIVELOCK,),
    ),
    Plant(
        "Ctrl-C does not stop the workers",
        _WORKERS,
        "        engine.request_stop()\n        for worker in workers:\n",
        "        for worker in workers:\n",
        "ctrl-c-2",
        (_HANG,),
    ),
    Plant(
        "a worker forgets to say that its compute is over",
        _WORKERS,
        "                    engine.running -= 1\n",
        "                    pass\n",
        "chain-2",
        (_HANG, _LEAK),
    ),
    Plant(
        "the first of the timers that are due is forgotten",
        _ENGINE,
        "        for evaluated in self.timers.due(now):\n",
        "        for evaluated in self.timers.due(now)[1:]:\n",
        "periodic-2",
        (_WRONG,),
    ),
    # Throttled nodes and shared queues.
    Plant(
        "a throttled node is not counted as outstanding",
        _ENGINE,
        "        node.blockers += 1\n        self.outstanding += 1\n",
        "        node.blockers += 1\n",
        "throttled-1",
        (_EARLY, _LEAK),
    ),
    Plant(
        "a throttled node that goes on is still counted as outstanding",
        _ENGINE,
        "        node.blockers -= 1\n        self.outstanding -= 1\n",
        "        node.blockers -= 1\n",
        "throttled-1",
        (_HANG, _LEAK),
    ),
    Plant(
        "an operator that is stopped is still counted as outstanding",
        _ENGINE,
        "                evaluated.awaits_event = False\n                self.outstanding -= 1\n",
        "                evaluated.awaits_event = False\n",
        "stop-operator-1",
        (_HANG, _LEAK),
    ),
    Plant(
        "the consumer takes a message while the oldest is dropped for a new one",
        _QUEUE,
        "        with self.lock:\n            return self.popleft()\n",
        "        if True:\n            return self.popleft()\n",
        "pop-2",
        (_WRONG, _ERROR),
    ),
]

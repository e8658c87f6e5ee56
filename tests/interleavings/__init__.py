"""Interleavings: the workers of the schedulers under every order of threads that small graphs can give.

Waiting and waking go wrong in ways that tests on free-running threads do not find: a wake-up that comes between
two lines of a worker that is about to park, a stop as a timer fires. Here the threads are real, and exactly one
of them runs at a time: a controller decides at every switch point who goes on. Switch points are the locks, the
parking, the sleeps and the starts of threads, which are replaced by controlled ones, and every line of the
modules that `bindings` names. Time is the controller's, and moves when no thread can go on, or earlier if the
schedule wants that. The same schedule gives the same run, each time.

What is found
-------------
- lost wake-up: something is ready, announced, or to end, and a worker that should see to it stays parked;
- missed time: a timer is due before any parked worker wakes up;
- double wake-up: a worker is woken again before it took the wake-up before;
- spin: more wake-ups than anything that happened could be worth;
- premature end: the run ends although something is ready, running, timed or awaited;
- misjudged: what the engine holds about a node that waits differs from what a new evaluation finds;
- wrong result: computes missing, out of order, late, or two of one operator at once;
- hang, livelock, error, leak: a thread that never leaves, a run that never ends, an exception, counts that are not
  back where they were.

How it is used
--------------
``pytest tests/interleavings`` runs a part of all schedules of each scenario, always the same, and plants faults
to see them found. For more::

    python -m tests.interleavings --seconds 60            # every scenario, exhaustively and by seed
    python -m tests.interleavings --seconds 60 stop event # those whose names have one of these words
    python -m tests.interleavings --preemptions 2 chain-2 # every schedule within a bound, however long it takes
    python -m tests.interleavings --plants                # the table of planted faults, and what found them
    python -m tests.interleavings --list

A fault is reported with the schedule that leads to it, the state of the engine, and the last steps of each
thread::

    python -m tests.interleavings --replay 'event-1:87=worker-0,103=setter'
    python -m tests.interleavings --seed 4711 loaded-3

Where things are
----------------
`controller` hands the baton on, `primitives` replace those of `threading` and `time`, `exploring` chooses and
writes down schedules, `effects` leaves out those that cannot make a difference. `scenario` runs one program,
`scenarios` are the programs, `watch` judges them. `planting` puts faults into the source, `plants` is the table
of them. `link_scenarios` are programs with links to other parts, whose loop waits at an epoll of `system`, which is
in memory. `bindings` is the only file that knows the inside of the runtime. To add a scenario, write what it
composes, what other threads do, and a check; to add a plant, copy a line of the source.

A switch between two bytecodes of one line is not tried, only between lines and around primitives: write a line
that must not be split apart as two, and it is tried. The compiled modules have no lines; there, these tests are
skipped.
"""

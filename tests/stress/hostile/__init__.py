"""A hostile half hour: `python -m tests.stress.hostile --minutes 30 --kills 50`.

A home with the embedded base, its trainings and its server, and four users over HTTP: ann asks one
picture after the other and is measured, bob submits tasks and has models made, mallory and eve send
whatever they can think of (`attacks.py`) beside requests that are sound. All the while processes
are killed by SIGKILL. Windows with the attackers take turns with windows without, so that both
see the same machine, the same trainings and the same kills.

    lost, doubled  as in `tests.stress.soak`, of what any of the four was told is accepted
    wrong          an answer that is not that of the user's own model, recomputed from cached
                   tangents; a success where there must be none; a file that was opened
    defects        answers of 500 while every process was there
    slower         ann's p99 with the attackers over that without, while the server was whole
    memory         the largest resident size of each kind of process
"""

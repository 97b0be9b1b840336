------------------------------- MODULE SinkTrace -------------------------------
(* Traces of the simulator: can ExactlyOnceSink do these actions, in this order?

   SinkTraces is written by the test. Each event names its action and what the simulator saw of it: the driver k, the
   task t, the turn n of an attempt and its place s. An action that nobody sees may happen between any two events, if its
   driver has work to do. TLC tries all of that; a trace is accepted if it reaches the end of the trace in one of them. *)
EXTENDS ExactlyOnceSink, SinkTraces, Sequences

VARIABLES n, l   \* the trace, and the number of its next event
all == <<vars, n, l>>

E == Traces[n][l]
TracePlace(S) == E.s
TraceFirst == Drivers
TraceGiven(t) == Turns
TraceNextToEnd(S) == S
TraceHasRows(k, t) == t <= Rows[n][k][d[k].b]

Id0(e) == <<e.t, e.n>>
Seen(e) ==
    \/ e.a = "Start" /\ Start(e.k) /\ d'[e.k].b = e.b
    \/ e.a = "InitDriver" /\ InitDriver(e.k)
    \/ e.a = "InitFinished" /\ InitFinished(e.k)
    \/ e.a = "Launch" /\ Launch(e.k, e.t) /\ r'[e.s].pc = "choose"
    \/ e.a = "Stall" /\ Stall(e.s) /\ r'[e.s].a = e.n
    \/ e.a = "Initialise" /\ Initialise(e.s)
    \/ e.a = "CheckAgain" /\ CheckAgain(e.s)
    \/ e.a = "Write" /\ Write(e.s) /\ r'[e.s].w = r[e.s].w + 1
    \/ e.a = "Prepared" /\ Prepared(e.s) /\ d'[e.k].msg[e.t] = <<r[e.s].a, r[e.s].ep>>
    \/ e.a = "BeginDecision" /\ BeginDecision(e.k) /\ d'[e.k].pc = "decide"
    \/ e.a = "Decide" /\ Decide(e.k) /\ d'[e.k].pc = "end"
    \/ e.a = "EndNext" /\ EndNext(e.k) /\ tx[Id0(e)].st = "ongoing" /\ tx'[Id0(e)].st = "committing"
    \/ e.a = "WriteMarkers" /\ WriteMarkers(Id0(e))
    \/ e.a = "Finished" /\ (Completed(e.k) \/ CloseFinished(e.k)) /\ fin'.num > fin.num
    \/ e.a = "AbortNext" /\ AbortNext(e.k) /\ tx[Id0(e)].st # "fenced" /\ tx'[Id0(e)].st = "fenced"
    \/ e.a = "GiveUpBatch" /\ GiveUpBatch(e.k) /\ d'[e.k].pc = "givenUp"
    \/ e.a = "Checkpoint" /\ Checkpoint(e.k) /\ ckpt' = ckpt + 1
    \/ e.a = "TimeOut" /\ TimeOut(Id0(e))
    \/ e.a = "Crash" /\ (Crash(e.k) \/ (d[e.k].pc \in {"off", "lost"} /\ UNCHANGED vars))
\* What no request shows: reads, and steps that find nothing to do.
Unseen(k) == \/ ListOld(k) \/ ReadLedger(k) \/ CheckCurrent(k) \/ Begun(k) \/ Ended(k) \/ CloseList(k) \/ CommitReplay(k)
             \/ (Completed(k) /\ fin' = fin) \/ (AbortNext(k) /\ tx' = tx) \/ (EndNext(k) /\ tx' = tx)
             \/ TasksFail(k) \/ JobFails(k) \/ GivenUp(k) \/ (BeginDecision(k) /\ d'[k].pc = "giveUp")

TraceInit == Init /\ n \in DOMAIN Traces /\ l = 1
TraceNext == /\ l <= Len(Traces[n]) /\ n' = n
             /\ \/ Seen(E) /\ l' = l + 1
                \/ (\E k \in Drivers : Unseen(k)) /\ l' = l
TraceSpec == TraceInit /\ [][TraceNext]_all
\* Tells the test how far each trace goes.
Told == PrintT(<<"reached", n, l>>)
================================================================================

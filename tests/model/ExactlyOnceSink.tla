---------------------------- MODULE ExactlyOnceSink ----------------------------
(* The exactly-once sink: two-phase commit over Kafka transactions, with a ledger of decisions.

   docs/design/model.md names the function of the code that each action stands for, and what is left out. A batch has
   one transaction for each task. Every task writes two records, because a transaction that holds one of them is torn.

   The attempts of a task take its ids <<task, turn>> in turn. The coordinator's state of an id is

     ep    the producer epoch; 0 if the id was never used
     st    "none", "empty" (initialised), "fenced" (initialised by a driver, held by nobody), "ongoing",
           "committing" (decided by the coordinator, without markers), "committed", "aborted"
     recs  the records of the open transaction, as <<batch, half>>

   Faults happen while `faults` is above 0. Each takes one from it: after the last one only the protocol acts.       *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Tasks, Turns, Drivers, Slots,     \* sets of numbers; Slots are places in which attempts run
          Coarse,                           \* tasks whose attempts are one step and never fail, for fewer states
          Batches, MaxFaults,               \* numbers
          OnLost,                           \* the option transactional.on.lost: "fail" or "replay"
          Broken                            \* rules that are switched off; {} is the code

VARIABLES tx,      \* by transactional id: its coordinator's state
          turn,    \* by task: the turn of its next attempt
          out,     \* by <<batch, task, half>>: how often a read_committed reader sees this record
          driver,  \* the coordinator's state of {prefix}-driver: epoch, and whether a decision is being written
          fin,     \* {prefix}-finished: the epoch of its transactional id, and the number in the group
          led,     \* {prefix}-ledger: number, batch and transactions of the last decision
          off,     \* the source group's offset: the last batch that it covers
          ckpt,    \* Spark's checkpoint: the last batch whose commit has returned
          d,       \* the drivers; two of them if one was suspended and another one started
          r,       \* the attempts that run
          faults,  \* how many faults may still happen
          late,    \* whether a transaction timed out after the driver had seen that it may decide
          said     \* whether a driver has raised LostTransactionsError about a decided transaction
vars == <<tx, turn, out, driver, fin, led, off, ckpt, d, r, faults, late, said>>

On(rule) == rule \notin Broken
Ids == Tasks \X Turns
Nothing == <<>>
NoTasks == [t \in Tasks |-> Nothing]
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
\* What a trace of the simulator says, and the model leaves out because it makes no difference, or more states: which
\* attempts and drivers take which places, whether a turn is lost, in which order transactions are committed, and which
\* tasks have rows.
Place(S) == Min(S)
First == {1}
Given(t) == {turn[t]}
NextToEnd(S) == {Min(S)}
HasRows(k, t) == TRUE
Max(x, y) == IF x > y THEN x ELSE y

Off == [pc |-> "off", b |-> 0, ep |-> 0, fep |-> 0, num |-> 0, last |-> 0, lost |-> {}, left |-> {}, todo |-> {},
        msg |-> NoTasks, rec |-> FALSE, listed |-> FALSE]
Idle == [pc |-> "idle", t |-> 0, b |-> 0, by |-> 0, a |-> 0, ep |-> 0, w |-> 0]

Init == /\ tx = [i \in Ids |-> [ep |-> 0, st |-> "none", recs |-> {}]]
        /\ turn = [t \in Tasks |-> 0]
        /\ out = [x \in (1..Batches) \X Tasks \X {1, 2} |-> 0]
        /\ driver = [ep |-> 0, st |-> "empty"]
        /\ fin = [ep |-> 0, num |-> 0]
        /\ led = [num |-> 0, b |-> 0, txs |-> NoTasks]
        /\ off = 0 /\ ckpt = 0 /\ late = FALSE /\ said = FALSE /\ faults = MaxFaults
        /\ d = [k \in Drivers |-> Off] /\ r = [s \in Slots |-> Idle]

\* What changes besides.
OnlyDriver == UNCHANGED <<tx, turn, out, driver, fin, led, off, r, said>>
DriverAndFaults == UNCHANGED <<tx, turn, out, driver, fin, led, off, ckpt, r, late, said>>
OnlyTask == UNCHANGED <<out, driver, fin, led, off, ckpt, d, faults, late, said>>

(***************************************** the coordinator of transactions *****************************************)
Fault == faults > 0 /\ faults' = faults - 1
\* <<turn, epoch>> is the transaction `x` of task t.
Id(t, x) == <<t, x[1]>>
Exists(t, x) == tx[Id(t, x)].ep = x[2] /\ tx[Id(t, x)].st \in {"ongoing", "committing", "committed"}
IsOpen(t, x) == tx[Id(t, x)].ep = x[2] /\ tx[Id(t, x)].st = "ongoing"
Unfinished == led.num > fin.num
Decided(i, e) == Unfinished /\ led.txs[i[1]] = <<i[2], e>>
\* Decided, or about to be: the driver has seen that it is open and that it has time left.
AtRisk(i, e) == Decided(i, e) \/ \E k \in Drivers : d[k].pc = "decide" /\ d[k].msg[i[1]] = <<i[2], e>>
Initialised(i, st) == [tx EXCEPT ![i] = [ep |-> tx[i].ep + 1, st |-> st, recs |-> {}]]
Aborted(i) == [tx EXCEPT ![i].st = "aborted", ![i].recs = {}]
NotEnded == {<<i, tx[i].ep>> : i \in {j \in Ids : tx[j].st \in {"ongoing", "empty"}}}
WriteMarkers(i) ==
    /\ tx[i].st = "committing"
    /\ tx' = [tx EXCEPT ![i].st = "committed", ![i].recs = {}]
    /\ out' = [x \in DOMAIN out |-> out[x] + (IF x[2] = i[1] /\ <<x[1], x[3]>> \in tx[i].recs THEN 1 ELSE 0)]
    /\ UNCHANGED <<turn, driver, fin, led, off, ckpt, d, r, faults, late, said>>
TimeOut(i) ==
    /\ tx[i].st = "ongoing" /\ Fault
    /\ tx' = [tx EXCEPT ![i] = [ep |-> tx[i].ep + 1, st |-> "aborted", recs |-> {}]]
    /\ late' = (late \/ AtRisk(i, tx[i].ep))
    /\ UNCHANGED <<turn, out, driver, fin, led, off, ckpt, d, r, said>>

(********************************************* the attempts of the tasks *********************************************)
Covers(k) == d[k].last >= d[k].b /\ On("ledger")
HasToWrite(k, t) == IF Covers(k) THEN t \in d[k].lost ELSE HasRows(k, t)
\* Spark runs an attempt: the first one, or one after a failure; with a fault a second one beside it (speculation, or
\* a stage that runs again).
Launch(k, t) ==
    /\ d[k].pc = "run" /\ HasToWrite(k, t) /\ d[k].msg[t] = Nothing /\ t \notin Coarse
    /\ \E s \in Slots : r[s].pc = "idle"
    /\ IF \E s \in Slots : r[s].pc # "idle" /\ r[s].by = d[k].ep /\ r[s].t = t THEN Fault ELSE UNCHANGED faults
    /\ LET s == Place({x \in Slots : r[x].pc = "idle"}) IN
       r' = [r EXCEPT ![s] = [Idle EXCEPT !.pc = "choose", !.t = t, !.b = d[k].b, !.by = d[k].ep]]
    /\ UNCHANGED <<tx, turn, out, driver, fin, led, off, ckpt, d, late, said>>
\* The first id from a turn on that nobody uses: no open transaction, and none about to be opened.
Later(n, more) == (n + more) % Cardinality(Turns)
Free(t) == {a \in Turns : tx[<<t, a>>].st \notin {"ongoing", "empty"}}
FreeFrom(t, n) == Later(n, Min({more \in Turns : Later(n, more) \in Free(t)}))
Takes(t, a) == turn' = [turn EXCEPT ![t] = IF On("turn") THEN Later(a, 1) ELSE 0]
\* All steps of an attempt at once.
WriteAll(k, t) ==
    /\ d[k].pc = "run" /\ HasToWrite(k, t) /\ d[k].msg[t] = Nothing /\ t \in Coarse
    /\ driver = [ep |-> d[k].ep, st |-> "empty"]
    /\ LET i == <<t, Min(Free(t))>> IN
       /\ tx[i].st # "committing" /\ UNCHANGED turn
       /\ tx' = [tx EXCEPT ![i] = [ep |-> @.ep + 1, st |-> "ongoing", recs |-> {d[k].b} \X {1, 2}]]
       /\ d' = [d EXCEPT ![k].msg[t] = <<i[2], tx[i].ep + 1>>]
    /\ UNCHANGED <<out, driver, fin, led, off, ckpt, r, faults, late, said>>
MyId(s) == <<r[s].t, r[s].a>>
\* The attempt aborts its transaction, or gives back an id without a transaction.
Fails(s) ==
    /\ r' = [r EXCEPT ![s] = Idle]
    /\ tx' = IF r[s].ep = 0 \/ tx[MyId(s)].ep # r[s].ep THEN tx
             ELSE CASE tx[MyId(s)].st = "ongoing" -> Aborted(MyId(s))
                    [] tx[MyId(s)].st = "empty" -> Initialised(MyId(s), "fenced")
                    [] OTHER -> tx
\* An attempt takes a turn whose id is free. Then: has the batch ended? Then InitProducerId. An attempt that stops before
\* that one while the world goes on is a fault; `pc` is "stalled" then.
NotOver(s) == driver = [ep |-> r[s].by, st |-> "empty"]
Claim(s) ==
    /\ r[s].pc = "choose" /\ Free(r[s].t) # {}
    /\ LET i == <<r[s].t, FreeFrom(r[s].t, turn[r[s].t])>> IN
       /\ Takes(r[s].t, i[2])
       /\ IF ~NotOver(s) THEN Fails(s)
            ELSE /\ tx[i].st # "committing" /\ tx' = Initialised(i, "empty")
                 /\ r' = [r EXCEPT ![s].pc = "initialised", ![s].a = i[2], ![s].ep = tx[i].ep + 1]
    /\ OnlyTask
Stall(s) ==
    /\ r[s].pc = "choose" /\ Free(r[s].t) # {} /\ NotOver(s) /\ Fault
    /\ \E n \in Given(r[s].t) : LET a == FreeFrom(r[s].t, n) IN
       Takes(r[s].t, a) /\ r' = [r EXCEPT ![s].pc = "stalled", ![s].a = a]
    /\ UNCHANGED <<tx, out, driver, fin, led, off, ckpt, d, late, said>>
Initialise(s) ==
    /\ r[s].pc = "stalled" /\ tx[MyId(s)].st # "committing"
    /\ tx' = Initialised(MyId(s), "empty")
    /\ r' = [r EXCEPT ![s].pc = "initialised", ![s].ep = tx[MyId(s)].ep + 1]
    /\ UNCHANGED turn /\ OnlyTask
\* The batch of the attempt has not ended meanwhile: else the driver would not know of what it opens.
CheckAgain(s) ==
    /\ r[s].pc = "initialised"
    /\ IF NotOver(s) THEN r' = [r EXCEPT ![s].pc = "write"] /\ UNCHANGED tx ELSE Fails(s)
    /\ UNCHANGED turn /\ OnlyTask
\* A broker takes a record if the epoch is the newest. After an abort or a commit the same epoch opens a transaction.
Write(s) ==
    /\ r[s].pc = "write" /\ r[s].w < 2 /\ tx[MyId(s)].st # "committing"
    /\ IF tx[MyId(s)].ep # r[s].ep THEN Fails(s)
         ELSE /\ tx' = [tx EXCEPT ![MyId(s)].st = "ongoing", ![MyId(s)].recs = @ \cup {<<r[s].b, r[s].w + 1>>}]
              /\ r' = [r EXCEPT ![s].w = @ + 1]
    /\ UNCHANGED turn /\ OnlyTask
\* After the flush: the open transaction is still the attempt's own. The first attempt that tells the driver counts.
Prepared(s) ==
    /\ r[s].pc = "write" /\ r[s].w >= (IF On("flush") THEN 2 ELSE 1)
    /\ LET i == MyId(s)
           told == {k \in Drivers : d[k].pc = "run" /\ d[k].ep = r[s].by /\ d[k].msg[r[s].t] = Nothing} IN
       IF tx[i].st = "ongoing" /\ (tx[i].ep = r[s].ep \/ ~On("own"))
         THEN /\ d' = [k \in Drivers |-> IF k \in told THEN [d[k] EXCEPT !.msg[r[s].t] = <<i[2], tx[i].ep>>] ELSE d[k]]
              /\ r' = [r EXCEPT ![s] = Idle] /\ UNCHANGED tx
         ELSE Fails(s) /\ UNCHANGED d
    /\ UNCHANGED <<turn, out, driver, fin, led, off, ckpt, faults, late, said>>
\* A worker dies. Where no driver waits for the attempt, this is no fault.
Killed(s) ==
    /\ r[s].pc # "idle" /\ r' = [r EXCEPT ![s] = Idle]
    /\ IF \E k \in Drivers : d[k].ep = r[s].by /\ d[k].pc = "run" THEN Fault ELSE UNCHANGED faults
    /\ UNCHANGED <<tx, turn, out, driver, fin, led, off, ckpt, d, late, said>>

(************************************************* the driver: begin *************************************************)
Step(k, from) == d[k].pc = from /\ UNCHANGED <<turn, ckpt, faults, late>>
To(k, pc) == d' = [d EXCEPT ![k].pc = pc]
Stop(k) == d' = [d EXCEPT ![k] = Off]
Current(k) == driver.ep = d[k].ep
Start(k) ==
    /\ d[k].pc = "off" /\ ckpt < Batches /\ ~\E j \in Drivers : d[j].pc = "lost"
    /\ IF \A j \in Drivers : d[j].pc = "off" THEN k \in First /\ UNCHANGED faults ELSE Fault
    /\ d' = [d EXCEPT ![k] = [Off EXCEPT !.pc = "begin", !.b = ckpt + 1]] /\ DriverAndFaults
Crash(k) ==
    /\ d[k].pc \notin {"off", "lost"} /\ Fault /\ Stop(k) /\ DriverAndFaults
\* The list is fetched while the ids are initialised.
ListOld(k) ==
    /\ Step(k, "begin") /\ ~d[k].listed /\ d' = [d EXCEPT ![k].left = NotEnded, ![k].listed = TRUE] /\ OnlyDriver
InitDriver(k) ==
    /\ Step(k, "begin") /\ d[k].ep = 0 /\ d' = [d EXCEPT ![k].ep = driver.ep + 1]
    /\ driver' = [ep |-> driver.ep + 1, st |-> "empty"] /\ UNCHANGED <<tx, out, fin, led, off, r, said>>
InitFinished(k) ==
    /\ Step(k, "begin") /\ d[k].ep # 0 /\ d[k].fep = 0 /\ fin' = [fin EXCEPT !.ep = @ + 1]
    /\ d' = [d EXCEPT ![k].fep = fin.ep + 1] /\ UNCHANGED <<tx, out, driver, led, off, r, said>>
ReadLedger(k) ==
    /\ Step(k, "begin") /\ d[k].listed /\ d[k].fep # 0
    /\ LET old == {<<Id(t, led.txs[t]), led.txs[t][2]>> : t \in {x \in Tasks : led.txs[x] # Nothing}} IN
       d' = [d EXCEPT ![k].pc = IF Unfinished THEN "complete" ELSE "check", ![k].last = led.b,
                      ![k].num = 1 + Max(led.num, fin.num), ![k].listed = FALSE,
                      ![k].todo = IF Unfinished THEN {t \in Tasks : led.txs[t] # Nothing} ELSE {},
                      ![k].msg = IF Unfinished THEN led.txs ELSE NoTasks,
                      ![k].left = IF On("spare") THEN @ \ old ELSE @]
    /\ OnlyDriver
\* EndTxn of the next transaction of the decision; `msg` names the transactions. A repeated commit has the same answer.
EndNext(k) ==
    /\ (Step(k, "complete") \/ Step(k, "end"))
    /\ d[k].todo # {} /\ \E t \in NextToEnd(d[k].todo) : LET x == d[k].msg[t] IN
       /\ tx' = IF IsOpen(t, x) THEN [tx EXCEPT ![Id(t, x)].st = "committing"] ELSE tx
       /\ d' = [d EXCEPT ![k].todo = @ \ {t}, ![k].lost = IF Exists(t, x) THEN @ ELSE @ \cup {t}]
    /\ UNCHANGED <<out, driver, fin, led, off, r, said>>
\* The error about lost transactions; a driver that was replaced says that instead, since its successor has ended them.
Lost(k, pc) ==
    IF On("replaced") /\ ~Current(k) THEN Stop(k) /\ UNCHANGED said
    ELSE said' = TRUE /\ IF pc = "lost" THEN To(k, "lost") ELSE Stop(k)
Visible(k) == \A t \in Tasks : d[k].msg[t] # Nothing =>
                 LET x == d[k].msg[t] IN ~(tx[Id(t, x)].ep = x[2] /\ tx[Id(t, x)].st \in {"ongoing", "committing"})
\* In a transaction of the driver's epoch of {prefix}-finished.
RecordFinished(k, num, pc) ==
    /\ Visible(k)
    /\ IF fin.ep = d[k].fep \/ ~On("finished")
         THEN /\ fin' = [ep |-> IF pc = "check" THEN fin.ep + 1 ELSE fin.ep, num |-> num]
              /\ d' = [d EXCEPT ![k].pc = pc, ![k].rec = (pc = "close"), ![k].fep = fin'.ep,
                                ![k].msg = IF pc = "check" THEN NoTasks ELSE @]
         ELSE Stop(k) /\ UNCHANGED fin
Completed(k) ==
    /\ Step(k, "complete") /\ d[k].todo = {}
    /\ CASE d[k].lost = {} -> RecordFinished(k, d[k].num - 1, "check") /\ UNCHANGED said
         [] d[k].lost # {} /\ OnLost = "fail" -> Lost(k, "lost") /\ UNCHANGED fin
         [] OTHER -> d' = [d EXCEPT ![k].pc = "run", ![k].left = {}, ![k].msg = NoTasks] /\ UNCHANGED <<fin, said>>
    /\ UNCHANGED <<tx, out, driver, led, off, r>>
\* `left` was read before this look, so it holds nothing of a driver that begins after it.
CheckCurrent(k) ==
    /\ Step(k, "check")
    /\ d' = [d EXCEPT ![k].pc = "abort", ![k].left = IF Current(k) THEN @ ELSE {}]
    /\ OnlyDriver
\* EndTxn (abort) and InitProducerId; both name the epoch.
AbortNext(k) ==
    /\ Step(k, d[k].pc) /\ d[k].pc \in {"abort", "close", "givenUp"} /\ d[k].left # {}
    /\ LET x == CHOOSE y \in d[k].left : TRUE IN
       /\ d' = [d EXCEPT ![k].left = @ \ {x}]
       /\ tx' = IF tx[x[1]].ep = x[2] /\ tx[x[1]].st \in {"ongoing", "empty"} THEN Initialised(x[1], "fenced") ELSE tx
    /\ UNCHANGED <<out, driver, fin, led, off, r, said>>
\* The tasks begin, unless the checkpoint is older than the ledger.
Begun(k) ==
    /\ Step(k, "abort") /\ d[k].left = {}
    /\ IF d[k].last > d[k].b /\ On("ledger") THEN Stop(k) ELSE To(k, "run")
    /\ OnlyDriver

(************************************************* the driver: commit *************************************************)
AllPrepared(k) == \A t \in Tasks : HasToWrite(k, t) => d[k].msg[t] # Nothing
Written(k) == {t \in Tasks : d[k].msg[t] # Nothing}
GiveUp(k) == To(k, "giveUp") /\ UNCHANGED <<driver, off, said>>
\* A replay of a batch whose records are all visible.
CommitReplay(k) ==
    /\ Step(k, "run") /\ Covers(k) /\ d[k].lost = {}
    /\ IF led.num = d[k].num - 1 /\ ~Unfinished THEN d' = [d EXCEPT ![k].pc = "close", ![k].rec = TRUE] ELSE Stop(k)
    /\ OnlyDriver
\* Every transaction is still the prepared one, then the transaction of the decision begins. A repair also needs a
\* replay for each transaction of the old decision that is lost by now.
BeginDecision(k) ==
    /\ Step(k, "run") /\ ~(Covers(k) /\ d[k].lost = {})
    /\ IF On("all") THEN AllPrepared(k) ELSE Written(k) # {}
    /\ LET open == \A t \in Written(k) : IsOpen(t, d[k].msg[t])
           repaired == Covers(k) => led.num = d[k].num - 1 /\ \A t \in Tasks \ Written(k) : Exists(t, led.txs[t]) IN
       IF (open \/ ~On("open")) /\ repaired /\ (driver = [ep |-> d[k].ep, st |-> "empty"] \/ ~On("epoch"))
         THEN /\ driver' = [driver EXCEPT !.st = "ongoing"] /\ To(k, "decide") /\ UNCHANGED said
              /\ off' = IF On("offsets") THEN off ELSE d[k].b
         ELSE GiveUp(k)
    /\ UNCHANGED <<tx, out, fin, led, r>>
Decide(k) ==
    /\ Step(k, "decide")
    /\ IF driver = [ep |-> d[k].ep, st |-> "ongoing"] \/ ~On("epoch")
         THEN /\ LET kept(t) == Covers(k) /\ d[k].msg[t] = Nothing IN
                 led' = [num |-> d[k].num, b |-> d[k].b,
                         txs |-> [t \in Tasks |-> IF kept(t) THEN led.txs[t] ELSE d[k].msg[t]]]
              /\ driver' = [driver EXCEPT !.st = "complete"] /\ off' = d[k].b
              /\ d' = [d EXCEPT ![k].pc = "end", ![k].todo = Written(k), ![k].lost = {}, ![k].msg = led'.txs]
         ELSE Stop(k) /\ UNCHANGED <<led, driver, off>>
    /\ UNCHANGED <<tx, out, fin, r, said>>
Ended(k) ==
    /\ Step(k, "end") /\ d[k].todo = {}
    /\ IF d[k].lost = {} THEN To(k, "close") /\ UNCHANGED said ELSE Lost(k, "off")
    /\ UNCHANGED <<tx, out, driver, fin, led, off, r>>
\* In any order: record the decision as finished; abort and fence what may still be opened.
CloseFinished(k) ==
    /\ Step(k, "close") /\ ~d[k].rec /\ RecordFinished(k, d[k].num, "close")
    /\ UNCHANGED <<tx, out, driver, led, off, r, said>>
CloseList(k) ==
    /\ Step(k, "close") /\ ~d[k].listed
    /\ d' = [d EXCEPT ![k].listed = TRUE, ![k].left = IF Current(k) THEN NotEnded ELSE {}]
    /\ OnlyDriver
\* Spark writes its checkpoint, and begins the next batch. It stops if another driver has written this batch there.
Checkpoint(k) ==
    /\ d[k].pc = "close" /\ d[k].rec /\ d[k].listed /\ d[k].left = {}
    /\ IF ckpt = d[k].b - 1 THEN ckpt' = d[k].b ELSE UNCHANGED ckpt
    /\ d' = [d EXCEPT ![k] = IF ckpt = d[k].b - 1 /\ d[k].b < Batches
                               THEN [Off EXCEPT !.pc = "begin", !.b = d[k].b + 1] ELSE Off]
    /\ UNCHANGED <<tx, turn, out, driver, fin, led, off, r, faults, late, said>>
\* A task has failed for good; without a fault all of them do when another driver has begun. Then the driver takes the
\* next epoch of its id, if nobody else has, and aborts the transactions.
TasksFail(k) == Step(k, "run") /\ ~Current(k) /\ To(k, "giveUp") /\ OnlyDriver
JobFails(k) == d[k].pc = "run" /\ Fault /\ To(k, "giveUp") /\ DriverAndFaults
GiveUpBatch(k) ==
    /\ Step(k, "giveUp")
    /\ IF Current(k) THEN /\ driver' = [ep |-> driver.ep + 1, st |-> "empty"]
                          /\ d' = [d EXCEPT ![k].pc = "givenUp", ![k].ep = driver.ep + 1,
                                            ![k].left = {x \in NotEnded : ~Decided(x[1], x[2])}]
                     ELSE Stop(k) /\ UNCHANGED driver
    /\ UNCHANGED <<tx, out, fin, led, off, r, said>>
GivenUp(k) == /\ Step(k, "givenUp") /\ d[k].left = {} /\ Stop(k)
              /\ UNCHANGED <<tx, out, driver, fin, led, off, r, said>>

(************************************************* the specification *************************************************)
DriverActs(k) == \/ ListOld(k) \/ InitDriver(k) \/ InitFinished(k) \/ ReadLedger(k) \/ EndNext(k) \/ Completed(k)
                 \/ CheckCurrent(k) \/ AbortNext(k) \/ Begun(k) \/ CommitReplay(k) \/ BeginDecision(k) \/ Decide(k)
                 \/ Ended(k) \/ CloseFinished(k) \/ CloseList(k) \/ Checkpoint(k) \/ TasksFail(k) \/ GiveUpBatch(k)
                 \/ GivenUp(k)
TaskActs(s) == Claim(s) \/ Initialise(s) \/ CheckAgain(s) \/ Write(s) \/ Prepared(s)
Launches(k, t) == Launch(k, t) \/ WriteAll(k, t)
\* When the faults have stopped, every batch becomes visible, or the query has stopped with LostTransactionsError.
Settled == \/ ckpt = Batches /\ \A x \in DOMAIN out : out[x] >= 1
           \/ late /\ \E k \in Drivers : d[k].pc = "lost"
FaultsStop == faults > 0 /\ faults' = 0 /\ UNCHANGED <<tx, turn, out, driver, fin, led, off, ckpt, d, r, late, said>>
\* TLC calls it a deadlock when nothing can happen. Here that is an error unless the query has settled.
Rest == Settled /\ UNCHANGED vars
Next == \/ FaultsStop \/ Rest
        \/ \E k \in Drivers : DriverActs(k) \/ Start(k) \/ Crash(k) \/ JobFails(k) \/ \E t \in Tasks : Launches(k, t)
        \/ \E s \in Slots : TaskActs(s) \/ Stall(s) \/ Killed(s)
        \/ \E i \in Ids : WriteMarkers(i) \/ TimeOut(i)
Spec == /\ Init /\ [][Next]_vars
        /\ \A k \in Drivers : WF_vars(DriverActs(k)) /\ WF_vars(Start(k)) /\ \A t \in Tasks : WF_vars(Launches(k, t))
        /\ \A s \in Slots : WF_vars(TaskActs(s))
        /\ \A i \in Ids : WF_vars(WriteMarkers(i))
\* No record is visible twice.
NoDuplicate == \A x \in DOMAIN out : out[x] <= 1
\* No record of a batch without a decision is visible.
OnlyDecided == \A x \in DOMAIN out : out[x] > 0 => x[1] <= led.b
\* All records of a finished decision, and of every earlier one, are visible; so are those of Spark's checkpoint.
NoLoss == \A x \in DOMAIN out : (x[1] < led.b \/ (x[1] = led.b /\ ~Unfinished) \/ x[1] <= ckpt) => out[x] >= 1
\* What is in Spark's checkpoint is recorded as finished: no driver will commit it again.
CheckpointIsFinished == ckpt = led.b => ~Unfinished
\* The group's offset is that of the last decision, never ahead of it, never behind.
OffsetsMatch == off = led.b
\* A transaction of a decision that is not finished exists, unless the coordinator timed it out.
DecidedStays == late \/ \A t \in Tasks : Unfinished /\ led.txs[t] # Nothing => Exists(t, led.txs[t])
\* Nobody is told that records are lost which are not.
LossIsReal == said => late
\* An id is free for each attempt.
TurnsSuffice == \A s \in Slots : r[s].pc = "choose" => Free(r[s].t) # {}
Liveness == <>[]Settled
================================================================================

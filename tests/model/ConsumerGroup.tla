----------------------------- MODULE ConsumerGroup -----------------------------
(* Queries as members of a group of the consumer protocol (KIP-848), which commit what they have read in transactions.

   docs/design/model.md names the function of the code that each action stands for, and what is left out. A query has
   one slot. A micro-batch reads the next record of each partition that the query has, and writes it. Then the driver
   commits the offset: at least once. Or the sink commits the offset and the records in one transaction, exactly once,
   with the epoch that it was told. Kafka's coordinator is that of CurrentAssignmentBuilder.

   {} stands for a field that is left out, and {x} for the field x: heartbeats and answers leave out what is unchanged.
   A process that is frozen is one that does nothing for any number of steps; every order of steps is tried.

   Faults happen while `faults` is above 0. Each takes one from it: after the last one only the protocol acts.       *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Members, Partitions,   \* sets of numbers; a member is the query's process with its member id
          Records, MaxFaults,    \* numbers; each partition has the records 1..Records
          Slow,                  \* whether a heartbeat is under way for a while before the coordinator handles it
          Sink,                  \* whether the sink commits (commit=sink) or the driver (commit=batch)
          Late,                  \* whether a request may be handled after its connection was given up
          Broken                 \* rules that are switched off; {} is the code

VARIABLES g,       \* the coordinator: the group's epoch, and by member `in`, epochs, assigned, pending, target
          off,     \* by partition: the committed offset
          tx,      \* by member: the offsets in its open transaction, as a set of <<partition, offset>>
          old,     \* heartbeats on connections that were given up, as <<member, request>>
          q,       \* the queries
          done,    \* by partition: up to where all records have been written by somebody, and are visible
          bad,     \* what must not happen: "stranger", "twice"; see FromTheOwner and ExactlyOnce
          faults   \* how many faults may still happen
vars == <<g, off, tx, old, q, done, bad, faults>>

On(rule) == rule \notin Broken
Max(x, y) == IF x > y THEN x ELSE y

NotIn == [in |-> FALSE, ep |-> 0, prev |-> 0, as |-> {}, pend |-> {}, tgt |-> {}]
(* Of the member, with the names of member_state in brackets:
     st    "off", "joining", "member" or "lost" (state)
     ep, tg, ow, told, rec (epoch, target, owned, told, reconciled)
     fail  its last heartbeat was not answered (failures)
     req, ans: the heartbeat under way, and its answer
   Of the query:
     pc    "idle" between two micro-batches, "run" in one, "commit" when it has ended, "tx" in a transaction,
           "again" when the query has failed and its sink's batch will run again
     b     the partitions of the micro-batch in flight
     pos   by partition: the next offset, in Spark's checkpoint
     un    the partitions whose positions are not known to be committed
     seen  the group's offsets were compared with the positions since what the member owns has changed last
     cr    the epoch with which the sink commits; 0 if it waits for one that was not refused
     ck    the sink has looked whether others have committed offsets of the batch                                   *)
Off == [st |-> "off", ep |-> 0, tg |-> {}, ow |-> {}, told |-> {{}}, rec |-> TRUE, fail |-> FALSE,
        req |-> {}, ans |-> {}, pc |-> "idle", b |-> {}, pos |-> [p \in Partitions |-> 0],
        un |-> {}, seen |-> FALSE, cr |-> 0, ck |-> FALSE]

Init == /\ g = [ep |-> 0, m |-> [m \in Members |-> NotIn]]
        /\ off = [p \in Partitions |-> 0] /\ done = off
        /\ tx = [m \in Members |-> {}] /\ old = {} /\ bad = {}
        /\ q = [m \in Members |-> Off] /\ faults = MaxFaults

Fault == faults > 0 /\ faults' = faults - 1

(*********************************************** the group coordinator ***********************************************)
\* Epochs only grow, and only by what faults and starts do, so their number is bounded.
In(h) == {m \in Members : h.m[m].in}
Smaller(S, m) == Cardinality({x \in S : x < m})
Share(S, m) == {p \in Partitions : S # {} /\ m \in S /\ p % Cardinality(S) = Smaller(S, m)}
Assigned(h, target) == [ep |-> h.ep + 1, m |-> [m \in Members |-> [h.m[m] EXCEPT !.tgt = target[m]]]]
Rebalanced(h) == Assigned(h, [m \in Members |-> Share(In(h), m)])
Added(h, m) == Rebalanced([h EXCEPT !.m[m] = [NotIn EXCEPT !.in = TRUE]])
Removed(h, m) == Rebalanced([h EXCEPT !.m[m] = NotIn])
Has(k, S) == k = {} \/ \E own \in k : own \cap S # {}
Taken(h, m) == UNION {h.m[x].as \cup h.m[x].pend : x \in Members \ {m}}
Advanced(h, m, own) ==
    LET k == h.m[m]
        kept == k.as \cap k.tgt
        gone == k.as \ k.tgt
    IN IF (k.pend # {} /\ Has(own, k.pend)) \/ (k.pend = {} /\ k.ep = h.ep /\ k.as = k.tgt) THEN k
       ELSE IF gone # {} /\ Has(own, gone) THEN [k EXCEPT !.as = kept, !.pend = gone, !.prev = k.ep]
       ELSE [k EXCEPT !.as = kept \cup (k.tgt \ Taken(h, m)), !.pend = {}, !.prev = k.ep, !.ep = h.ep]
\* The coordinator's next state, and its answer.
Handled(h, m, r) ==
    LET h1 == IF r.ep = 0 /\ ~h.m[m].in THEN Added(h, m) ELSE h
        k == h1.m[m]
        \* The epoch before is taken if the member has what it is assigned: the answer may have been lost.
        retries == r.ep = k.prev /\ \E own \in r.own : own \subseteq k.as
        n == Advanced(h1, m, r.own)
    IN IF ~k.in \/ ~(r.ep \in {0, k.ep} \/ (r.ep < k.ep /\ retries))
       THEN [h |-> h, ans |-> [ok |-> FALSE, ep |-> 0, tg |-> {}]]
       ELSE [h |-> [h1 EXCEPT !.m[m] = n],
             ans |-> [ok |-> TRUE, ep |-> n.ep, tg |-> IF r.ep = 0 \/ r.full \/ n.as # k.as THEN {n.as} ELSE {}]]
Owns(m, p) == p \in g.m[m].as \cup g.m[m].pend
Accepts(m, ep) == ~On("epoch") \/ (g.m[m].in /\ g.m[m].ep = ep)

OnlyGroup == UNCHANGED <<off, tx, done, bad>>
OnlyQuery == UNCHANGED <<g, off, tx, old, done, bad, faults>>
Handle(m) == \E r \in q[m].req : LET x == Handled(g, m, r) IN
    /\ q[m].ans = {} /\ g' = x.h /\ q' = [q EXCEPT ![m].ans = {x.ans}] /\ OnlyGroup /\ UNCHANGED <<old, faults>>
HandleOld(x) ==
    /\ g' = Handled(g, x[1], x[2]).h /\ old' = old \ {x} /\ OnlyGroup /\ UNCHANGED <<q, faults>>
\* A session ends: that of a process that is gone, or, as a fault, of one that is frozen or gives nothing up in time.
SessionEnds(m) ==
    /\ g.m[m].in /\ IF q[m].st = "off" THEN UNCHANGED faults ELSE Fault
    /\ g' = Removed(g, m) /\ OnlyGroup /\ UNCHANGED <<q, old>>
\* The assignor's result is another one, for example because a client has asked for another assignor.
Reassign(t) ==
    /\ Fault /\ g' = Assigned(g, [m \in Members |-> {p \in Partitions : t[p] = m}])
    /\ OnlyGroup /\ UNCHANGED <<q, old>>

(*************************************************** the heartbeats ***************************************************)
Set(m, new) == q' = [q EXCEPT ![m] = new @@ @]
Revoking(m) == IF q[m].st = "member" THEN q[m].ow \ q[m].tg ELSE {}
Start(m) == q[m].st = "off" /\ ~g.m[m].in /\ Set(m, [st |-> "joining"]) /\ OnlyQuery
Rejoin(m) ==
    /\ q[m].st = "lost" /\ q[m].pc \in {"idle", "again", IF Sink THEN "idle" ELSE "commit"}
    /\ IF q[m].pc = "again" THEN Set(m, [st |-> "joining"])
                            ELSE Set(m, [st |-> "joining", b |-> {}, pc |-> "idle"])
    /\ OnlyQuery
Answered(x, r, a) ==
    LET tg == IF a.tg = {} THEN x.tg ELSE CHOOSE t \in a.tg : TRUE
        new == tg # x.tg
    IN IF a.ok
       THEN [x EXCEPT !.st = "member", !.ep = a.ep, !.tg = tg, !.fail = FALSE, !.rec = @ /\ ~new,
                      !.told = IF new /\ On("told") THEN {} ELSE IF r.own = {} THEN @ ELSE r.own]
       ELSE [x EXCEPT !.st = "lost", !.ep = 0, !.tg = {}, !.fail = FALSE, !.rec = TRUE, !.told = {{}}, !.seen = FALSE,
                      !.ow = IF On("fence") THEN {} ELSE @]
\* A request on a connection that was given up is lost, or is handled later.
Waits(m, requests) == old' = old \/ (Late /\ old' = old \cup {<<m, r>> : r \in requests})
Send(m) ==
    /\ q[m].st \in {"joining", "member"} /\ q[m].req = {}
    /\ LET x == q[m]
           full == x.ep = 0 \/ (x.fail /\ On("full"))
           news == (x.rec \/ ~On("after")) /\ {x.ow} # x.told /\ (Revoking(m) = {} \/ ~On("silent"))
           none == x.ow = {} /\ (x.tg = {} \/ ~On("after"))
           has == IF On("silent") THEN x.ow ELSE x.ow \cap x.tg
           own == IF none \/ full \/ news THEN {has} ELSE {}
           r == [ep |-> x.ep, full |-> full, own |-> own]
           h == Handled(g, m, r)
       IN IF Slow THEN Set(m, [req |-> {r}]) /\ UNCHANGED <<g, old, faults>>
          ELSE \/ /\ <<h.h, Answered(x, r, h.ans)>> # <<g, x>>
                  /\ Set(m, [req |-> {r}, ans |-> {h.ans}]) /\ g' = h.h /\ UNCHANGED <<old, faults>>
               \/ Fault /\ Set(m, [fail |-> TRUE]) /\ UNCHANGED g /\ Waits(m, {r})
    /\ OnlyGroup
Receive(m) ==
    /\ \E r \in q[m].req : \E a \in q[m].ans :
          q' = [q EXCEPT ![m] = [Answered(@, r, a) EXCEPT !.req = {}, !.ans = {}]]
    /\ OnlyQuery
\* No answer in time. The request may be lost, or wait in a broker; or it was handled and the answer is lost.
NoAnswer(m) ==
    /\ q[m].req # {} /\ Fault
    /\ Set(m, [fail |-> TRUE, req |-> {}, ans |-> {}])
    /\ IF q[m].ans = {} THEN Waits(m, q[m].req) ELSE UNCHANGED old
    /\ UNCHANGED <<g, off, tx, done, bad>>
\* What is taken away is given up when the batch in flight does not read it; what is new is taken.
Reconcile(m) ==
    /\ q[m].st = "member" /\ (q[m].ow # q[m].tg \/ ~q[m].rec) /\ q[m].pc # "tx"
    /\ On("flight") => Revoking(m) \cap q[m].b = {} \/ q[m].pc = "again"
    /\ On("turn") => q[m].req = {}
    /\ Set(m, [ow |-> q[m].tg, rec |-> TRUE, seen |-> q[m].seen /\ q[m].ow = q[m].tg])
    /\ OnlyQuery
\* Where the positions were when the batch was planned.
From(m) == [p \in Partitions |-> IF q[m].pc \in {"commit", "tx"} /\ p \in q[m].b THEN q[m].pos[p] - 1
                                                                            ELSE q[m].pos[p]]
Failed(m) == [Off EXCEPT !.pc = "again", !.b = q[m].b, !.pos = From(m)]
Dies(m) ==
    /\ q[m].st # "off" /\ Fault
    /\ q' = [q EXCEPT ![m] = IF Sink /\ q[m].b # {} THEN Failed(m) ELSE
                 [Off EXCEPT !.pc = IF q[m].pc = "tx" THEN "commit" ELSE q[m].pc,
                             !.b = q[m].b, !.pos = q[m].pos, !.un = q[m].un]]
    /\ UNCHANGED <<g, off, tx, old, done, bad>>

(************************************************** the micro-batches *************************************************)
Open(p) == \E m \in Members : \E e \in tx[m] : e[1] = p
Stable(S) == ~On("stable") \/ \A p \in S : ~Open(p)
\* Compare with the group: what it has further on was read by others; where it is behind, it has to be told.
Compare(m) ==
    /\ q[m].st = "member" /\ q[m].pc \in {"idle", IF Sink THEN "idle" ELSE "commit"} /\ ~q[m].seen
    /\ Stable(q[m].ow)
    /\ LET x == q[m]
           ahead == {p \in x.ow : On("compare") /\ (Sink \/ off[p] >= x.pos[p])}
       IN Set(m, [seen |-> TRUE, un |-> x.un \ ahead,
                  pos |-> [p \in Partitions |-> IF p \in ahead THEN off[p] ELSE x.pos[p]]])
    /\ OnlyQuery
Plan(m) ==
    /\ q[m].st = "member" /\ q[m].pc = "idle" /\ q[m].seen
    /\ LET new == {p \in q[m].ow : q[m].pos[p] < Records} IN
       new # {} /\ Set(m, [pc |-> "run", b |-> new, ck |-> FALSE, cr |-> IF Sink THEN q[m].ep ELSE 0])
    /\ OnlyQuery
\* Spark runs a batch also when the query has lost its place, and again when the process died in it.
Written(m) ==
    /\ q[m].pc = "run"
    /\ LET x == q[m] IN
       /\ done' = [p \in Partitions |-> IF ~Sink /\ p \in x.b /\ x.pos[p] <= done[p] /\ On("written")
                                         THEN Max(done[p], x.pos[p] + 1) ELSE done[p]]
       /\ Set(m, [pc |-> "commit", un |-> IF Sink THEN {} ELSE x.un \cup x.b,
                  pos |-> [p \in Partitions |-> IF p \in x.b THEN x.pos[p] + 1 ELSE x.pos[p]]])
    /\ UNCHANGED <<g, off, tx, old, bad, faults>>
ToCommit(m) == {p \in q[m].un : p \in q[m].ow \/ ~On("owned")}
\* InitProducerId, which ends a transaction that is still open, and TxnOffsetCommit, which names the member's epoch.
Add(m) ==
    /\ ~Sink /\ q[m].st = "member" /\ q[m].pc \in {"idle", "commit"} /\ q[m].seen /\ ToCommit(m) # {}
    /\ IF Accepts(m, q[m].ep)
       THEN /\ tx' = [tx EXCEPT ![m] = {<<p, q[m].pos[p]>> : p \in ToCommit(m)}]
            /\ bad' = bad \cup {"stranger" : p \in {x \in ToCommit(m) : ~Owns(m, x)}}
            /\ Set(m, [pc |-> "tx"])
       ELSE tx' = [tx EXCEPT ![m] = {}] /\ Set(m, [pc |-> "idle", b |-> {}]) /\ UNCHANGED bad
    /\ UNCHANGED <<g, off, old, done, faults>>
Merged(m) == [p \in Partitions |-> IF \E e \in tx[m] : e[1] = p THEN (CHOOSE e \in tx[m] : e[1] = p)[2]
                                                                  ELSE off[p]]
\* The sink's records become visible with the offsets.
Commit(m) ==
    /\ off' = Merged(m)
    /\ IF Sink THEN done' = Merged(m) /\ bad' = bad \cup {"twice" : e \in {x \in tx[m] : x[2] # off[x[1]] + 1}}
               ELSE UNCHANGED <<done, bad>>
End(m) ==
    /\ q[m].pc = "tx"
    /\ Commit(m) /\ tx' = [tx EXCEPT ![m] = {}]
    /\ Set(m, [pc |-> "idle", b |-> {}, un |-> q[m].un \ {e[1] : e \in tx[m]}])
    /\ UNCHANGED <<g, old, faults>>
\* There is nothing to commit: all of it is another member's by now, or others have read on.
NothingToCommit(m) ==
    /\ ~Sink /\ q[m].st = "member" /\ q[m].pc = "commit" /\ q[m].seen /\ ToCommit(m) = {}
    /\ Set(m, [pc |-> "idle", b |-> {}]) /\ OnlyQuery
\* The commit is not answered: the query goes on, and commits later.
Unanswered(m) ==
    /\ q[m].pc = "tx" /\ Fault
    /\ IF Sink THEN q' = [q EXCEPT ![m] = Failed(m)] ELSE Set(m, [pc |-> "idle", b |-> {}])
    /\ UNCHANGED <<g, off, tx, old, done, bad>>
\* What nobody ends any more: the EndTxn was still under way, or the coordinator aborts it after its timeout.
Resolved(m) ==
    /\ q[m].pc # "tx" /\ tx[m] # {}
    /\ Commit(m) \/ UNCHANGED <<off, done, bad>>
    /\ tx' = [tx EXCEPT ![m] = {}]
    /\ UNCHANGED <<g, old, q, faults>>

(*************************************************** commit=sink ***************************************************)
Fails(m) == q' = [q EXCEPT ![m] = Failed(m)]
\* The driver joins again in the middle of the batch, unless others have its partitions.
Recover(m) ==
    /\ Sink /\ q[m].st = "lost" /\ q[m].pc \in {"run", "commit"}
    /\ IF \E x \in Members \ {m} : g.m[x].as \cap q[m].b # {} THEN Fails(m) ELSE Set(m, [st |-> "joining"])
    /\ OnlyQuery
\* The driver publishes its epoch of now for the sink, if it has the batch's partitions when it has taken its target.
Publish(m) ==
    /\ Sink /\ q[m].st = "member" /\ q[m].pc = "commit" /\ q[m].cr = 0
    /\ q[m].rec \/ q[m].b \subseteq q[m].ow
    /\ IF q[m].b \subseteq q[m].ow THEN Set(m, [cr |-> q[m].ep]) ELSE Fails(m)
    /\ OnlyQuery
\* The sink looks whether others have read records of the batch, again for each new epoch.
Look(m) ==
    /\ Sink /\ q[m].pc = "commit" /\ q[m].cr # 0 /\ ~q[m].ck /\ Stable(q[m].b)
    /\ IF On("look") /\ \E p \in q[m].b : off[p] > From(m)[p] THEN Fails(m) ELSE Set(m, [ck |-> TRUE])
    /\ OnlyQuery
\* The sink's TxnOffsetCommit. After a refusal it waits for another epoch.
Decide(m) ==
    /\ Sink /\ q[m].pc = "commit" /\ q[m].ck
    /\ IF Accepts(m, q[m].cr)
       THEN /\ tx' = [tx EXCEPT ![m] = {<<p, q[m].pos[p]>> : p \in q[m].b}]
            /\ bad' = bad \cup {"stranger" : p \in {x \in q[m].b : ~Owns(m, x)}}
            /\ Set(m, [pc |-> "tx"])
       ELSE Set(m, [cr |-> 0, ck |-> FALSE]) /\ UNCHANGED <<tx, bad>>
    /\ UNCHANGED <<g, off, old, done, faults>>
\* After a restart the query runs what it still has of the batch, and nobody has read since.
Again(m) ==
    /\ Sink /\ q[m].pc = "again" /\ q[m].st = "member" /\ q[m].rec /\ Stable(q[m].b)
    /\ LET left == {p \in q[m].b \cap q[m].ow : off[p] = q[m].pos[p]} IN
       IF left = {} THEN Set(m, [pc |-> "idle", b |-> {}])
                    ELSE Set(m, [pc |-> "run", b |-> left, cr |-> q[m].ep, ck |-> FALSE])
    /\ OnlyQuery

(************************************************* the specification *************************************************)
AllRead == \A p \in Partitions : off[p] = Records /\ Cardinality({m \in Members : p \in q[m].ow}) = 1
Acts(m) == \/ Start(m) \/ Rejoin(m) \/ Send(m) \/ Handle(m) \/ Receive(m) \/ Reconcile(m)
           \/ Compare(m) \/ Plan(m) \/ Written(m) \/ Add(m) \/ End(m) \/ NothingToCommit(m)
           \/ Recover(m) \/ Publish(m) \/ Look(m) \/ Decide(m) \/ Again(m)
Cleans(m) == Resolved(m) \/ (q[m].st = "off" /\ SessionEnds(m))
FaultsStop == faults > 0 /\ faults' = 0 /\ UNCHANGED <<g, off, tx, old, q, done, bad>>
\* TLC calls it a deadlock when nothing can happen. Here that is an error unless all is read.
Rest == (AllRead \/ Late) /\ UNCHANGED vars
Next == \/ \E m \in Members : Acts(m) \/ SessionEnds(m) \/ NoAnswer(m) \/ Dies(m) \/ Unanswered(m) \/ Resolved(m)
        \/ \E x \in old : HandleOld(x)
        \/ \E t \in [Partitions -> In(g)] : Reassign(t)
        \/ FaultsStop \/ Rest
Spec == Init /\ [][Next]_vars
        /\ \A m \in Members : WF_vars(Acts(m)) /\ WF_vars(Cleans(m))
\* Reads for a batch whose commit the coordinator would take.
Reads(m, p) == /\ q[m].pc \in {"run", "commit"} /\ p \in q[m].b \cap q[m].ow
               /\ q[m].st = "member" /\ Accepts(m, q[m].ep)
OneOwner == \A p \in Partitions : Cardinality({m \in Members : Reads(m, p)}) <= 1
\* Each record before a committed offset was read, and written.
NothingSkipped == \A p \in Partitions : off[p] <= done[p]
\* Each offset came from the member that owned the partition when the coordinator took it.
FromTheOwner == "stranger" \notin bad
\* With commit=sink each record is visible once.
ExactlyOnce == "twice" \notin bad
NeverBack == [][\A p \in Partitions : off'[p] >= off[p]]_off
\* Nothing is given up in the middle of a batch that reads it, but by members that the group has removed.
KeptInFlight == [][\A m \in Members : q[m].st = "member" /\ q'[m].st = "member" /\ q'[m].pc \notin {"idle", "again"} =>
                       q[m].b \cap q[m].ow \subseteq q'[m].ow]_q
\* When the faults have stopped, each partition gets an owner, which reads it to its end.
Liveness == <>[]AllRead
================================================================================

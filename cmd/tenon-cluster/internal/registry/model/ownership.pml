/*
 * A model of the rules by which nodes own blocks. README.md describes it, and run checks it. Each
 * step of a process below is atomic, and names the Go function that it stands for: between two
 * steps other processes act, the process can be killed, and the store can be restored.
 *
 * OLD_… restores a fault that the code had, and NO_… plants one.
 */

#define PROCS 2                  /* agents */
#define BLOCKS 2
#ifdef CLONES
#define NODES 1                  /* process 1 is a copy of process 0 */
#define node(p) 0
#else
#define NODES 2
#define node(p) p
#endif
#ifndef REVISIONS
#define REVISIONS 6              /* of each branch of the history */
#endif
#ifndef RESTORES
#define RESTORES 1
#endif
#ifndef SNAPSHOTS
#define SNAPSHOTS 1
#endif
#ifndef KILLS
#define KILLS 1                  /* killed agents, and leases that end early */
#endif
#ifndef FENCES
#define FENCES 0
#endif
#ifndef CONFIRMS
#define CONFIRMS 0
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#ifdef ONE_BLOCK
#define free(b) (b == 0 && s.owner[0] == FREE)
#else
#define free(b) (s.owner[b] == FREE)
#endif
#define LOOKS 2                  /* attempts of an agent to renew in a lease time */

/* cluster.NodeState; a node without document has revision 0 */
#define ACTIVE 0
#define SUSPECT 1
#define FENCED 2

/* the owner of a block in the store: FREE, or a node + 1 */
#define FREE 0

/* local.Phase of a block in the files. Addresses of an owned block may be in use, of a lost one
 * are in use, and of others are not. */
#define NONE 0
#define OWNED 1
#define RETURNING 2
#define LOST 3

/* what the holder of an agent's turn does next */
#define IDLE 0
#define JOIN 1                   /* in join, after compareStore */
#define PROVE 2                  /* in join, renewProof */
#define CONFIRM 3                /* in join, confirm */
#define SPEAK 4                  /* in renew, speak */
#define CLAIM 5                  /* in claim: a request or its answer is on its way */
#define RETURN 6                 /* in giveBack: the answer is on its way */

typedef Doc {                    /* cluster.Node */
	byte rev; unsigned state : 2; unsigned epoch : 3; unsigned store : 6; bit boot
};
typedef Store {                  /* etcd */
	byte rev;
	unsigned nonce : 6;      /* cluster.Meta: 8*number + what tells equal numbers apart */
	bit doubt;               /* cluster.Doubt */
	Doc doc[NODES];
	byte owner[BLOCKS];
#ifdef CLONES
	byte live;               /* the lease of live/N: the revision of its join; 0 if absent */
	bit contested;
#endif
	byte proof[NODES];       /* cluster.Proof: 0 if absent, else 2*turn + process */
};
Store s, old;                    /* the present store, and the snapshot */

typedef Agent {
	/* local.Node, the blocks of local.State, the file of an intent */
	unsigned dstore : 6; byte dseen; byte drev; unsigned depoch : 3; bit ddoubt;
	byte dknown; byte dnext;
	unsigned file0 : 2; unsigned file1 : 2;
	bit ok;                  /* State.Boot is the present boot */
	bit rival;               /* State.Rival */
	bit intent; bit claimed; /* the block of the intent */
	bit boot;
	/* Agent, registry.Seen */
	bit up; bit sess; unsigned pc : 3;
	unsigned nonce : 6; byte seen; byte newest; byte srev; unsigned sepoch : 3; byte lease;
	byte known; byte next;
	bit doubt; bit first; bit settle; bit away;
	/* a claim on its way, also after the end of the agent, or its answer */
	bit flight; byte answer
};
Agent a[PROCS];

unsigned nonces : 3;             /* given so far */
byte snapshots, restores, kills, fences, confirms, returns;
bit down;                        /* all members of etcd are stopped */

/* The assumption about a restore that loses transactions: an agent knows of it, and looks at the store
 * LOOKS times before a lease time has passed. It has changed its own document in the lost part;
 * if no agent has, it has seen the lost part, and looks before others have written as much. */
unsigned pending : 2;            /* looks until the lease time may pass */
bit knows[PROCS];
bit begun[PROCS];                /* the attempt to renew has begun since */
byte mark;                       /* the store must not reach this revision before the first look */

#ifdef PROPERTY_FORGET
bit noticed[PROCS];              /* the agent has had evidence, and no operator has confirmed it */
#endif
#ifdef CLONES
bit copied, gone[PROCS];
bit tolerated;                   /* original and copy may still both allocate */
/* Since the copy or a restore, in a store in which it compares proofs: 1 the agent has replaced its
 * proof, 2 and then renewed. */
byte duty[PROCS];
#ifdef OLD_DOUBT
#define compares(p) true
#else
#define compares(p) (!unsaid(p))
#endif
#endif

bit evil, foreign, indoubt, stale; /* results of inlines; 0 between steps */

#ifdef NO_BIND
#define BOUND 1
#else
#define BOUND (s.nonce == A.nonce)
#endif
#define A a[p]
#define D s.doc[node(p)]
#define PROOF s.proof[node(p)]
#define mine(p, b) (s.owner[b] == node(p) + 1)
#ifdef CLONES
#define CONTESTED s.contested
#else
#define CONTESTED false
#endif
#define turn(v) ((v) / 2)

/* ---- evidence ---- */

/* Seen.Doubt */
inline notice(p) {
	A.doubt = 1
}

/* Seen.request and the function that it returns, for an answer at revision rev */
inline judged(p, at) {
	mark = (knows[p] -> 0 : mark);
	if
#ifndef OLD_MARK
	:: at < A.seen -> notice(p)
#endif
	:: else
	fi;
	if
	:: !A.doubt && at > A.seen -> A.seen = at
	:: else
	fi
}

/* Agent.setNode */
inline setNode(p, at) {
	if
	:: at < A.newest -> notice(p)
	:: else -> A.newest = at
	fi;
	A.srev = at
}

/* Agent.distrust */
inline distrust(p) {
#ifndef OLD_FORGET
	A.ddoubt = A.ddoubt | A.doubt
#else
	skip
#endif
}

/* Agent.keepSeen */
inline keepSeen(p) {
	A.dseen = A.seen;
	A.drev = A.newest
}

/* Agent.mayGrow with settling */
#ifdef OLD_WAIT
#define mayGrow(p) (!A.doubt)
#elif defined(OLD_SILENCE)
#define mayGrow(p) (!A.doubt && !A.settle)
#else
#define mayGrow(p) (!A.doubt && !A.settle && !A.away)
#endif

/* Agent.meet */
inline meet(p) {
	A.settle = A.settle | A.first | A.away;
	A.first = 0; A.away = 0
}

/* Agent.prover: the doubt before the request decides which proofs it compares. */
inline prover(p) {
	indoubt = A.doubt
}

/* Agent.unsaid for an agent that has met a store with a nonce, not cluster.LaterNonce */
#ifdef OLD_NONCE
#define EARLIER(p) (A.nonce == A.dstore)
#else
#define EARLIER(p) (A.nonce / 8 <= A.dstore / 8)
#endif
#define unsaid(p) (A.doubt && EARLIER(p))

/* Registry.judge: evil is ErrRival, foreign is ErrForeign */
inline judge(p) {
#ifdef OLD_DOUBT
	if
	:: PROOF && !indoubt ->
#elif !defined(OLD_PROOF)
	if
	:: (PROOF || CONTESTED) && !(indoubt && EARLIER(p)) ->
#else
	if
	:: false ->
#endif
		if
		:: CONTESTED -> evil = 1
		:: !CONTESTED && (PROOF == A.known || PROOF == A.next)
		:: !CONTESTED && PROOF != A.known && PROOF != A.next ->
			if
			:: indoubt && turn(PROOF) < turn(A.known)
			:: !indoubt && turn(PROOF) < turn(A.known) -> foreign = 1; notice(p)
			:: else -> evil = 1
			fi
		fi
	:: else
	fi
}

/* Registry.prove writes the next proof; Agent.proved */
inline putProof(p) {
	if
#ifdef OLD_DOUBT
	:: A.next && !indoubt ->
#else
	:: A.next && !(indoubt && EARLIER(p)) ->
#endif
		PROOF = A.next;
		if
		:: unsaid(p)
		:: else -> A.known = A.next; A.next = 0
		fi
	:: else
	fi
}

/* the end of Agent.beat */
inline look(p) {
	A.pc = IDLE;
	distrust(p);
#ifdef PROPERTY_FORGET
	noticed[p] = noticed[p] | A.doubt;
#endif
	if
	:: pending && knows[p] && begun[p] ->
		pending--; begun[p] = 0;
		knows[0] = knows[0] && pending; knows[1] = knows[1] && pending
	:: else
	fi
}

/* Agent.renew after a join that failed */
inline fail(p) {
#ifndef OLD_SPEAK
	A.pc = SPEAK
#else
	look(p)                          /* does not reach speak */
#endif
}

/* A request that nobody waits for compares the document and the nonce of the store. */
#define late(q) a[q].flight = a[q].flight && a[q].pc == CLAIM

/* A transaction changes the node's document. */
inline change(p) {
	s.rev++; D.rev = s.rev;
#ifdef CLONES
	/* the document is evidence of a restore for the other process no more */
	knows[1-p] = knows[1-p] && a[1-p].ddoubt;
	late(0); late(1)
#else
	late(p)
#endif
}

inline lose(p) { A.sess = 0; A.srev = 0; A.sepoch = 0; A.lease = 0 }

/* A claim ends without answer, and its intent stays. The request may arrive late. */
inline unanswered(p) {
	A.answer = 0; A.flight = A.flight && D.rev == A.srev && s.nonce == A.nonce
}

/* The process ends, and its memory with it. Its request may still arrive. */
inline die(p) {
	unanswered(p);
	A.up = 0; lose(p); A.pc = IDLE; A.nonce = 0; A.seen = 0; A.newest = 0;
	A.known = 0; A.next = 0; A.doubt = 0; A.first = 0; A.settle = 0; A.away = 0
}

/* Agent.expel */
inline expel(p) {
#ifdef CLONES
	if
	:: A.sess && s.nonce == A.nonce -> s.rev++; s.contested = 1
	:: else
	fi;
#endif
	look(p);
	A.rival = 1;
	die(p)
}

/* Agent.accept */
inline accept(p) {
	if
	:: A.doubt && D.store == A.nonce && D.store != A.dstore && !unsaid(p) ->
		A.dstore = D.store; A.seen = s.rev; A.dseen = s.rev; A.newest = D.rev; A.drev = D.rev;
		A.doubt = 0; A.ddoubt = 0;
#ifdef PROPERTY_FORGET
		noticed[p] = 0;
#endif
		lose(p)
	:: else
	fi
}

/* ---- join ---- */

/* Agent.identify */
inline start(p) {
	A.up = 1; A.first = 1;
#ifdef CLONES
	/* Before it has spoken, it compares no proofs: the time of 40 s begins again. */
	tolerated = tolerated | (restores && copied && !gone[0] && !gone[1]);
	duty[0] = duty[0] && !restores; duty[1] = duty[1] && !restores;
#endif
	A.seen = A.dseen; A.newest = A.drev; A.known = A.dknown; A.next = A.dnext; A.doubt = A.ddoubt
}

/* Agent.compareStore */
inline compareStore(p) {
	if
#ifndef NO_DOUBT
	:: A.dstore != s.nonce && (s.doubt || A.dstore) -> notice(p)
#endif
	:: A.dstore == s.nonce && D.rev && D.rev < A.newest -> notice(p)
	:: else
	fi;
	distrust(p);
	A.pc = JOIN
}

/* Agent.join: Registry.Trust, bind, excludeRival, compareStore */
inline trust(p) {
	begun[p] = pending && knows[p];
	judged(p, s.rev);
	A.nonce = s.nonce;
#ifdef CLONES
	if
	:: D.boot != A.boot && s.live && D.state == ACTIVE ->
		if
		:: a[1-p].up && a[1-p].lease == s.live -> expel(p)
		:: else -> fail(p)       /* errEarlierBoot */
		fi
	:: else -> compareStore(p)
	fi
#else
	compareStore(p)
#endif
}

/* the store of a document that Agent.join writes */
#define trusted(p) (A.dstore || A.doubt -> A.dstore : A.nonce)

/* Registry.tryEnter writes; Agent.join goes on */
inline enter(p) {
	change(p); D.boot = A.boot; D.state = ACTIVE;
#ifdef CLONES
	s.live = s.rev; A.lease = s.rev;
#endif
	putProof(p);
	judged(p, s.rev);
	meet(p);
	A.sess = 1; A.srev = s.rev; A.sepoch = D.epoch;
	A.dstore = trusted(p);
	A.pc = PROVE
}

/* Agent.surrender: blocks with addresses in use become lost, others are dropped */
inline surrender(p, rest) {
	A.file0 = (A.file0 == OWNED -> rest : (A.file0 == LOST -> LOST : NONE));
	A.file1 = (A.file1 == OWNED -> rest : (A.file1 == LOST -> LOST : NONE))
}

/* Agent.prover and Registry.Join; if the node is fenced, Agent.comeBack: surrender, and
 * Registry.Reclaim and Rejoin */
inline join(p, rest) {
	prover(p);
	judged(p, s.rev);
	if
	:: D.rev && D.state == FENCED -> surrender(p, rest)
	:: else
	fi;
	if
	:: D.rev && D.state == FENCED && (A.file0 == LOST || A.file1 == LOST) -> fail(p)
	:: D.rev && D.state != FENCED && D.epoch < A.depoch -> fail(p) /* ErrForeign */
#ifndef OLD_JOIN
	:: D.rev && !A.doubt && D.rev < A.newest -> notice(p); fail(p) /* Registry.notOlder */
#endif
	:: else ->
		judge(p);
		if
		:: evil -> expel(p)
		:: !evil && (foreign || s.nonce != A.nonce) -> fail(p)
		:: else ->
			if
			:: D.rev == 0 -> D.epoch = (A.depoch -> A.depoch : 1); D.store = trusted(p)
			:: D.rev && D.state == FENCED ->
				s.owner[0] = (mine(p, 0) -> FREE : s.owner[0]);
				s.owner[1] = (mine(p, 1) -> FREE : s.owner[1]);
				D.epoch = (A.depoch > D.epoch -> A.depoch : D.epoch) + 1;
				D.store = A.dstore
			:: D.rev && D.state != FENCED ->
				D.store = (D.store == A.nonce -> D.store : trusted(p))
			fi;
			enter(p)
		fi;
		evil = 0; foreign = 0
	fi;
	indoubt = 0
}

/* Agent.renewProof: remember, Registry.Prove, proved. In two nodes the proof has no revision of its
 * own. */
inline prove(p, after) {
	A.pc = after;
	keepSeen(p);
	prover(p);
	if
#ifdef OLD_DOUBT
	:: indoubt -> duty[p] = (copied && duty[p] == 0 -> 1 : duty[p])
#else
	:: unsaid(p)
#endif
	:: else ->
		A.next = (A.next -> A.next : 2 * (turn(A.known) + 1) + p);
		A.dknown = A.known; A.dnext = A.next;
		judged(p, s.rev);
		judge(p);
		if
		:: evil -> expel(p)
		:: !evil && (foreign || s.nonce != A.nonce) ->
			lose(p);
			if
			:: after == CONFIRM -> fail(p)
			:: else          /* the end of upkeep */
			fi
		:: else ->
#ifdef CLONES
			s.rev++;
#endif
			putProof(p);
			judged(p, s.rev)
#ifdef CLONES
			; duty[p] = (copied && duty[p] == 0 && compares(p) -> 1 : duty[p])
#endif
		fi;
		evil = 0; foreign = 0
	fi;
	indoubt = 0
}

/* Agent.merge for a block: rest is what an owned block becomes that the store does not show */
inline merge(p, phase, b, rest) {
	if
	:: mine(p, b) && phase == LOST -> phase = OWNED
#ifndef NO_MERGE
	:: mine(p, b) && phase == NONE && mayGrow(p) -> phase = OWNED
#else
	:: mine(p, b) && phase == NONE -> phase = OWNED
#endif
	:: !mine(p, b) && phase == OWNED -> phase = rest
	:: !mine(p, b) && phase == RETURNING -> phase = NONE
	:: else
	fi
}

#define forgotten(p) (A.file0 == OWNED && !mine(p, 0) || A.file1 == OWNED && !mine(p, 1))

/* Registry.blocksOf compares the nonce of the store if the node has blocks. */
#ifndef OLD_OWNED
#define otherStore(p) (s.nonce != A.nonce && (mine(p, 0) || mine(p, 1)))
#else
#define otherStore(p) false
#endif

/* Agent.confirm: Registry.Owned, setNode, findRewind, distrust, keepSeen, confirmPool; accept of the
 * document that join has written */
inline confirm(p, rest) {
	judged(p, s.rev);
	if
	:: D.rev == 0 || otherStore(p) -> lose(p); fail(p)
	:: else ->
		stale = D.rev != A.srev;
		setNode(p, D.rev);
		A.sepoch = D.epoch;
		if
		:: D.epoch == A.depoch && forgotten(p) -> notice(p)
		:: else
		fi;
		distrust(p);
		keepSeen(p);
		merge(p, A.file0, 0, rest);
		merge(p, A.file1, 1, rest);
		A.ok = 1; A.rival = 0; A.depoch = D.epoch;
		A.pc = SPEAK;
		if
		:: !stale -> accept(p)
		:: else
		fi;
		stale = 0
	fi
}

/* Agent.speak, Registry.Distrust */
inline speak(p) {
#ifndef OLD_SILENT
	if
	:: unsaid(p) ->
		if
		:: s.nonce == A.nonce ->
			s.rev++; nonces++; s.nonce = 8*((s.nonce > A.dstore -> s.nonce : A.dstore)/8 + 1) + nonces;
			s.doubt = 1;
			late(0); late(1)
		:: else
		fi;
		judged(p, s.rev);
		lose(p)
	:: else
	fi;
#endif
	look(p)
}

/* ---- renewals ---- */

/* Agent.drifted */
#define holds(phase) (phase == OWNED || phase == RETURNING)
#define missing(p) (holds(A.file0) && !mine(p, 0) || holds(A.file1) && !mine(p, 1))
#define unknown(p) (!holds(A.file0) && mine(p, 0) || !holds(A.file1) && mine(p, 1))
#ifndef OLD_DRIFT
#define drifted(p) (!A.doubt && missing(p) || mayGrow(p) && unknown(p))
#else
#define drifted(p) (mayGrow(p) && (missing(p) || unknown(p)))
#endif

/* Agent.prolong: Registry.Renew, refresh with accept; touch; upkeep: sync, keepSeenSometimes */
inline renew(p) {
	begun[p] = pending && knows[p];
	prover(p);
	judged(p, s.rev);
	if
	:: s.nonce != A.nonce -> lose(p)
	:: else ->
		judge(p);
		if
		:: evil -> expel(p)
		:: !evil && (foreign || D.rev == 0 || D.state != ACTIVE || D.epoch != A.sepoch) -> lose(p)
#ifdef CLONES
		:: !evil && !foreign && D.rev && D.state == ACTIVE && D.epoch == A.sepoch && D.boot != A.boot ->
			expel(p)
		:: !evil && !foreign && D.rev && D.state == ACTIVE && D.epoch == A.sepoch && D.boot == A.boot &&
			s.live != A.lease -> lose(p)
#endif
		:: else ->
			if
			:: D.rev != A.srev -> setNode(p, D.rev); accept(p)
			:: else
			fi;
			if
			:: A.sess ->
				meet(p);
				if
				:: A.newest != A.drev -> keepSeen(p)
				:: else
				fi;
				if
				:: drifted(p) -> lose(p)
				:: else
				fi
			:: else
			fi;
#ifdef CLONES
			duty[p] = (copied && compares(p) && (duty[0] || !a[0].up) && (duty[1] || !a[1].up) -> 2 : duty[p]);
#endif
			A.pc = SPEAK
		fi;
		evil = 0; foreign = 0
	fi;
	indoubt = 0
}

/* ---- blocks ---- */

inline setFile(p, b, phase) {
	if
	:: b == 0 -> A.file0 = phase
	:: else -> A.file1 = phase
	fi
}

/* Agent.adopt of the claimed block */
inline adopt(p) {
	if
#ifndef NO_RECHECK
	:: mayGrow(p) ->
#else
	:: 1 ->
#endif
		keepSeen(p);
		setFile(p, A.claimed, OWNED);
		A.ok = 1; A.intent = 0; A.claimed = 0
	:: else
	fi
}

/* Agent.resolve: Registry.Exclude, adopt */
inline resolve(p) {
	judged(p, s.rev);
	if
	:: s.nonce != A.nonce || D.rev == 0 -> lose(p)
	:: else ->
		if
		:: mine(p, A.claimed)
		:: else -> change(p); judged(p, s.rev)
		fi;
		setNode(p, D.rev);
		if
		:: mine(p, A.claimed) -> adopt(p)
		:: else -> A.intent = 0; A.claimed = 0
		fi
	fi
}

/* Agent.claim: mayClaim, intend; race sends the request for the first free block */
inline claim(p) {
#ifdef PROPERTY_FORGET
	assert(!noticed[p]);
#endif
	A.intent = 1; A.claimed = (s.owner[0] == FREE -> 0 : 1);
	A.flight = 1;
	A.pc = CLAIM
}

/* Registry.claim.try: the request arrives at the store. An agent that waits for it has read the
 * document again, if it has changed, and repeated the request. */
#define still(p) (D.rev && D.state == ACTIVE && D.epoch == A.sepoch)
inline commit(p) {
	A.flight = 0;
	if
	:: A.pc == CLAIM && D.rev != A.srev ->
		judged(p, s.rev);
#ifndef OLD_CLAIM
		if
		:: still(p) && D.rev < A.srev -> notice(p); stale = 1 /* Registry.mayGain */
		:: else
		fi
#endif
	:: else
	fi;
	if
	:: !stale && (A.pc != CLAIM || BOUND && still(p)) && D.state == ACTIVE && D.rev &&
		s.owner[A.claimed] == FREE ->
		change(p); s.owner[A.claimed] = node(p) + 1;
		A.answer = (A.pc == CLAIM -> s.rev : 0)
	:: else
	fi;
	stale = 0
}

/* Agent.claim after the answer: setNode, adopt, settle */
inline answered(p) {
	A.pc = IDLE;
	if
	:: A.answer ->
		judged(p, A.answer);
		setNode(p, A.answer);
		adopt(p)
	:: else -> A.intent = 0; A.claimed = 0       /* refused */
	fi;
	A.answer = 0
}

/* Agent.returns, giveBack: Registry.Owned, Return */
inline giveBack(p, b) {
	judged(p, s.rev);
	if
	:: s.nonce != A.nonce || D.rev == 0 -> lose(p)
	:: else ->
		setNode(p, D.rev);
		if
		:: mine(p, b) ->
			change(p); s.owner[b] = FREE;
			judged(p, s.rev); setNode(p, D.rev)
		:: else
		fi;
		A.pc = RETURN
	fi
}

/* the end of giveBack */
inline returned(p) {
	A.pc = IDLE;
	A.file0 = (A.file0 == RETURNING && !mine(p, 0) -> NONE : A.file0);
	A.file1 = (A.file1 == RETURNING && !mine(p, 1) -> NONE : A.file1)
}

/* ---- the world ---- */

#define joined(p) (A.up && A.sess && A.pc == IDLE)
#define store(n) (!down && s.rev + n <= REVISIONS && (n == 0 || mark == 0 || s.rev + n < mark))

/* local.Pool.Allocate allocates from block b of process q, or containers have addresses of it. */
#define usable(q, phase) (a[q].phase == OWNED && a[q].ok && !a[q].rival)
#define inUse(q, phase) (usable(q, phase) || a[q].phase == LOST)
#ifdef CLONES                    /* which has the containers of the other one, too */
#define twice(phase) (usable(0, phase) && usable(1, phase))
#else
#define twice(phase) (usable(0, phase) && inUse(1, phase) || usable(1, phase) && inUse(0, phase))
#endif

#define latest (NODES == 2 && s.doc[NODES-1].rev > s.doc[0].rev -> s.doc[NODES-1].rev : s.doc[0].rev)
#ifdef CLONES
#define exists(q) (!gone[q])
#else
#define exists(q) true
#endif
/* the agent has evidence that nothing takes away; also after a restart */
#define certain(q) (a[q].ddoubt || a[q].drev > old.doc[node(q)].rev)
#define witness(q) (exists(q) && (certain(q) || a[q].doubt || a[q].newest > old.doc[node(q)].rev))
/* or it has only seen what is lost */
#define read(q) (exists(q) && !witness(q) && (a[q].seen >= latest || a[q].dseen >= latest))
#define lossless (latest <= old.rev && pending == 0)

/* The agent is killed, unless no other one knows what was lost. */
#define mayDie(p) (!(pending || down) || !knows[p] || certain(p) || mark && A.dseen >= mark || knows[1-p])
inline kill(p) {
	kills++;
	die(p);
	knows[p] = knows[p] && (certain(p) || mark && A.dseen >= mark)
}

/* A lease time has passed. */
inline tick(p) {
	A.settle = 0;
	if
	:: down -> a[0].away = a[0].up; a[1].away = a[1].up
	:: else
	fi
}

/* Registry.Suspect, after the end of the lease */
inline suspect(p) {
	fences++;
	change(p); D.state = SUSPECT
}

/* Registry.Fence, with the evidence that the node is off: it has no containers */
inline fence(p) {
	change(p); D.state = FENCED;
	A.ok = 0;
	A.file0 = (A.file0 == LOST -> NONE : A.file0); A.file1 = (A.file1 == LOST -> NONE : A.file1)
}

/* Registry.Reclaim */
inline reclaim(p) {
	change(p);
	s.owner[0] = (mine(p, 0) -> FREE : s.owner[0]);
	s.owner[1] = (mine(p, 1) -> FREE : s.owner[1])
}

/* What an operator checks on a node before the confirmation: its agent has joined, and check
 * reports no containers. */
#define clean(q, b, phase) (a[q].phase == NONE || s.owner[b] == node(q) + 1)
#define checked(q) (a[q].up && a[q].sess && a[q].pc == IDLE && a[q].nonce == s.nonce && \
	clean(q, 0, file0) && clean(q, 1, file1))
#define waits(n) (s.doc[n].rev && s.doc[n].state != FENCED && s.doc[n].store != s.nonce)

/* tenon-cluster confirm --all-nodes, for one node: Registry.Update, and at last EndDoubt */
inline confirmNode(n) {
	confirms++;
	change(n); s.doc[n].store = s.nonce; s.proof[n] = 0;
	if
	:: !waits(0) && !waits(NODES-1) -> s.doubt = 0; pending = 0; knows[0] = 0; knows[1] = 0
	:: else
	fi
}

inline copyNode(to, from, n) {
	to.doc[n].rev = from.doc[n].rev; to.doc[n].state = from.doc[n].state;
	to.doc[n].epoch = from.doc[n].epoch; to.doc[n].store = from.doc[n].store;
	to.doc[n].boot = from.doc[n].boot; to.proof[n] = from.proof[n]
}
inline copy(to, from) {
	to.rev = from.rev; to.nonce = from.nonce; to.doubt = from.doubt;
	to.owner[0] = from.owner[0]; to.owner[1] = from.owner[1];
	copyNode(to, from, 0);
#ifdef CLONES
	to.live = from.live; to.contested = from.contested
#else
	copyNode(to, from, 1)
#endif
}

/* All members stop, and all connections break. Requests on their way to them are lost. */
inline outage(readers) {
	begun[0] = 0; begun[1] = 0;
	restores++;
	if
	:: readers ->
		knows[0] = read(0); knows[1] = read(1); mark = latest
	:: !readers && (latest > old.rev || pending) ->
		knows[0] = witness(0) || pending && knows[0];
		knows[1] = witness(1) || pending && knows[1]
	:: else
	fi;
#ifdef CLONES
	tolerated = tolerated | (copied && !gone[0] && !gone[1]);
	duty[0] = 0; duty[1] = 0;
#endif
	down = 1;
#ifdef OLD_SILENCE
	a[0].settle = a[0].settle || a[0].up;
	a[1].settle = a[1].settle || a[1].up
#elif !defined(NO_BREAKS)
	a[0].away = a[0].up;             /* Agent.broken */
	a[1].away = a[1].up
#endif
}
inline restore() {
	copy(s, old);
	down = 0;
	late(0); late(1);
	pending = (knows[0] || knows[1] -> LOOKS : 0)
}

#ifdef CLONES
#define PAIR(f) a[1].f = a[0].f
/* A copy that no check of the files finds: of a file system, or of a running virtual machine, with
 * the same boot ID or another. */
inline clone(memory, another) {
	copied = 1; tolerated = 1; gone[1] = 0;
	PAIR(dstore); PAIR(dseen); PAIR(drev); PAIR(depoch); PAIR(ddoubt); PAIR(dknown); PAIR(dnext);
	PAIR(file0); PAIR(file1); PAIR(ok); PAIR(rival); PAIR(intent); PAIR(claimed);
	a[1].boot = another;
	if
	:: another -> a[1].ok = 0
	:: else
	fi;
	if
	:: memory ->
		PAIR(up); PAIR(sess); PAIR(nonce); PAIR(seen); PAIR(newest); PAIR(srev); PAIR(sepoch);
		PAIR(lease); PAIR(known); PAIR(next); PAIR(doubt); PAIR(first); PAIR(settle); PAIR(away)
	:: else
	fi
}

/* The time of 40 s is over. Meanwhile an agent that runs has replaced its proof, and then renewed;
 * or it has ended with a rival. The original may be killed after it has replaced its proof. */
#define over(q) (gone[q] || (a[q].up -> duty[q] == 2 : a[q].rival || q == 0 && duty[0]))

/* tenon-cluster confirm --node: Registry.Settle, after the operator has removed the other one */
inline decide(p) {
	if
	:: p == 0 -> die(1)
	:: else -> die(0)
	fi;
	gone[1-p] = 1; a[1-p].file0 = NONE; a[1-p].file1 = NONE;
	s.rev++; s.proof[0] = 0; s.contested = 0
}
#endif

proctype agent(byte p) {
end:	do
	:: d_step { !A.up && exists(p) -> start(p) }
	:: d_step { A.up && !A.sess && A.pc == IDLE && store(0) -> trust(p) }
	:: d_step { A.pc == JOIN && store(1) -> join(p, NONE) }
#if FENCES
	:: d_step { A.pc == JOIN && store(1) && D.state == FENCED && A.ok -> join(p, LOST) }
#endif
	:: d_step { A.pc == PROVE && store(0) -> prove(p, CONFIRM) }
	:: d_step { A.pc == CONFIRM && store(0) -> confirm(p, NONE) }
	:: d_step { A.pc == CONFIRM && store(0) && A.ok -> confirm(p, LOST) }
	:: d_step { A.pc == SPEAK && (store(1) || !A.doubt) -> speak(p) }
	:: d_step { joined(p) && store(0) -> renew(p) }
	:: d_step { joined(p) && kills < KILLS -> kills++; lose(p) }

	:: d_step { joined(p) && A.intent && mayGrow(p) && store(1) -> resolve(p) }
	:: d_step { joined(p) && !A.intent && mayGrow(p) && store(1) && (free(0) || free(1)) -> claim(p) }
	:: d_step { A.flight && store(1) -> commit(p) }
	:: d_step { A.pc == CLAIM && !A.flight -> answered(p) }
	:: d_step { A.pc == CLAIM && kills < KILLS -> kills++; A.pc = IDLE; unanswered(p) }

#if RETURNS
	:: d_step { A.up && A.file0 == OWNED && returns < RETURNS -> returns++; A.file0 = RETURNING } /* Agent.retire */
	:: d_step { joined(p) && mayGrow(p) && A.file0 == RETURNING && store(1) -> giveBack(p, 0) }
	:: d_step { A.pc == RETURN -> returned(p) }
#endif
	:: d_step { A.file0 == LOST -> A.file0 = NONE }   /* containers end; Agent.dropLost */
	:: d_step { A.file1 == LOST -> A.file1 = NONE }

	:: d_step { A.up && kills < KILLS && mayDie(p) -> kill(p) }
	:: d_step { A.settle && A.pc != CLAIM && (pending == 0 || down) -> tick(p) }
#ifdef CLONES
	:: d_step { joined(p) && store(1) -> prove(p, IDLE) } /* keepSeenSometimes, leave */
	:: d_step { copied && !gone[0] && !gone[1] && s.contested && store(1) -> decide(p) }
#endif
	od
}

proctype world() {
end:	do
	:: d_step { snapshots < SNAPSHOTS && !down -> snapshots++; copy(old, s) }
	:: d_step { restores < RESTORES && snapshots && !down && mark == 0 && (lossless || witness(0) || witness(1)) -> outage(0) }
	:: d_step { restores < RESTORES && snapshots && !down && !lossless && pending == 0 && (read(0) || read(1)) -> outage(1) }
	:: d_step { down -> restore() }
#if FENCES
	:: d_step { fences < FENCES && pending == 0 && s.doc[0].rev && s.doc[0].state == ACTIVE && store(1) -> suspect(0) }
	:: d_step { fences < FENCES && pending == 0 && s.doc[1].rev && s.doc[1].state == ACTIVE && store(1) -> suspect(1) }
	:: d_step { s.doc[0].state == SUSPECT && !a[0].up && pending == 0 && store(1) -> fence(0) }
	:: d_step { s.doc[1].state == SUSPECT && !a[1].up && pending == 0 && store(1) -> fence(1) }
	:: d_step { s.doc[0].state == FENCED && (mine(0, 0) || mine(0, 1)) && store(1) -> reclaim(0) }
	:: d_step { s.doc[1].state == FENCED && (mine(1, 0) || mine(1, 1)) && store(1) -> reclaim(1) }
#endif
#if CONFIRMS
	:: d_step { confirms < CONFIRMS && s.doubt && waits(0) && checked(0) && checked(1) && store(1) -> confirmNode(0) }
	:: d_step { confirms < CONFIRMS && s.doubt && waits(1) && checked(0) && checked(1) && store(1) -> confirmNode(1) }
#endif
#ifdef CLONES
	:: d_step { !copied && a[0].pc == IDLE -> clone(0, 0) }
	:: d_step { !copied && a[0].pc == IDLE -> clone(0, 1) }
	:: d_step { !copied && a[0].pc == IDLE && a[0].up -> clone(1, 0) }
	:: d_step { tolerated && over(0) && over(1) -> tolerated = 0 }
	:: (twice(file0) || twice(file1)) && !tolerated -> assert(false)
#elif !defined(PROPERTY_FORGET)
	:: twice(file0) || twice(file1) -> assert(false)
#endif
	od
}

/* Process p has joined. */
inline founded(p) {
	A.dnext = 2 + p;
	start(p);
	s.rev++; D.rev = s.rev; D.epoch = 1; D.store = 1; PROOF = A.next;
#ifdef CLONES
	s.live = s.rev; A.lease = s.rev;
#endif
	A.sess = 1; A.first = 0; A.nonce = 1; A.srev = s.rev; A.sepoch = 1; A.seen = s.rev; A.newest = s.rev;
	A.known = A.next; A.next = 0;
	A.dstore = 1; A.dseen = s.rev; A.drev = s.rev; A.depoch = 1; A.ok = 1
}

init {
	d_step {
		s.nonce = 1; nonces = 1;
		founded(0);
#ifdef CLONES
		gone[1] = 1
#else
		founded(1)
#endif
	}
	atomic { run agent(0); run agent(1); run world() }
}

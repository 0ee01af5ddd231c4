//! Mistakes that people make when they write such a controller, each as one edit of the rules.

/// One mistake.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// What it is, in a phrase.
    pub(crate) name: &'static str,
    /// The file, from the root of the project.
    pub(crate) file: &'static str,
    /// What stands there.
    pub(crate) right: &'static str,
    /// What stands there instead.
    pub(crate) wrong: &'static str,
}

/// All of them.
pub(crate) const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "the whole taint list is written from what was cached",
        file: "crates/core/src/patch.rs",
        right: "            self.ops.push(PatchOp::Remove { path });\n        }\n        self\n    }\n\n    /// Puts",
        wrong: "            let mut list = self.node.taints.clone();\n            list.remove(position);\n            \
                self.ops = vec![self.ops[0].clone(), self.ops[1].clone(), \
                add(\"/spec/taints\".to_owned(), Value::Array(list))];\n        }\n        self\n    }\n\n    /// Puts",
    },
    Mistake {
        name: "a taint is taken off by its place in the list alone",
        file: "crates/core/src/patch.rs",
        right: "            self.ops.push(test(path.clone(), self.node.taints[position].clone()));\n",
        wrong: "",
    },
    Mistake {
        name: "a patch is not bound to the UID of the node",
        file: "crates/core/src/patch.rs",
        right: "            test(\"/metadata/uid\".to_owned(), json!(node.id.uid)),\n",
        wrong: "            test(\"/metadata/name\".to_owned(), json!(node.id.name)),\n",
    },
    Mistake {
        name: "a patch is not bound to the boot of the node",
        file: "crates/core/src/patch.rs",
        right: "            test(\"/status/nodeInfo/bootID\".to_owned(), json!(node.boot)),\n",
        wrong: "",
    },
    Mistake {
        name: "the state is written over whatever is there",
        file: "crates/core/src/patch.rs",
        right: "            let seen = self.seen(key);\n            self.ops.push(seen);\n            self.ops.push(add",
        wrong: "",
    },
    Mistake {
        name: "a taint list is made although somebody else may have made one",
        file: "crates/core/src/patch.rs",
        right: "            self.ops.push(test(\"/spec/taints\".to_owned(), Value::Null));\n",
        wrong: "",
    },
    Mistake {
        name: "a worker is matched by the name of its node",
        file: "crates/core/src/decide/subject.rs",
        right: "        *stamp == next && self.is_required(Some(&stamp.policy), Some(&stamp.requires))\n",
        wrong: "        stamp.serial == next.serial\n",
    },
    Mistake {
        name: "an old result is taken for a new one",
        file: "crates/core/src/decide/subject.rs",
        right: "        *stamp == next && self.is_required(Some(&stamp.policy), Some(&stamp.requires))\n",
        wrong: "        (&stamp.node, &stamp.boot, stamp.purpose) == (&next.node, &next.boot, next.purpose)\n",
    },
    Mistake {
        name: "taint and label are changed in two writes",
        file: "crates/core/src/decide/gate.rs",
        right: "patch.label(label).state(&state)",
        wrong: "patch.state(&state)",
    },
    Mistake {
        name: "a result counts only if its event was seen",
        file: "crates/core/src/world/workers.rs",
        right: "        for view in views {\n",
        wrong: "        for view in views.into_iter().filter(is_live) {\n",
    },
    Mistake {
        name: "a worker that vanished or was evicted costs an attempt",
        file: "crates/core/src/decide/trial/record.rs",
        right: "            phase,\n            boot: so_far",
        wrong: "            phase: StatePhase::Failed,\n            boot: so_far",
    },
    Mistake {
        name: "a worker that was told to stop has failed",
        file: "crates/core/src/decide/trial.rs",
        right: "            Some(worker) if worker.view.leaving => self.wait_for_the_end(worker),\n            \
                Some(worker) if subject.is_current",
        wrong: "            Some(worker) if subject.is_current",
    },
    Mistake {
        name: "a time limit is judged by what the watch told last",
        file: "crates/core/src/decide/trial/progress.rs",
        right: "        } else if subject.entry.reread.is_none_or(|at| at < until) {\n            Progress::Unsure\n",
        wrong: "        } else if false {\n            Progress::Unsure\n",
    },
    Mistake {
        name: "the label is evidence",
        file: "crates/core/src/decide/verification.rs",
        right: "(true, Some(StatePhase::Verified)) if same_boot && subject.is_labelled()",
        wrong: "(true, _) if subject.is_labelled()",
    },
    Mistake {
        name: "what was proven before a restart still holds",
        file: "crates/core/src/decide/verification.rs",
        right: "(true, Some(StatePhase::Verified)) if same_boot && subject.is_labelled()",
        wrong: "(true, Some(StatePhase::Verified)) if subject.is_labelled()",
    },
    Mistake {
        name: "a node is closed again although nobody asked for it",
        file: "crates/core/src/decide/verification.rs",
        right: "            _ => Standing::Verified,\n",
        wrong: "            _ if subject.view.taints.len() > 2 => Standing::ToBeClosed,\n            _ => Standing::Verified,\n",
    },
    Mistake {
        name: "all of no init pods are ready",
        file: "crates/core/src/decide/gate/pods.rs",
        right: "    if pods.peek().is_none() {\n",
        wrong: "    if pods.peek().is_none() && subject.cx.now == Timestamp::MAX {\n",
    },
    Mistake {
        name: "an init pod of an earlier node of the same name counts",
        file: "crates/core/src/decide/gate/pods.rs",
        right: "!pod.leaving && pod.created >= created && required",
        wrong: "!pod.leaving && pod.created >= created.min(pod.created) && required",
    },
    Mistake {
        name: "what init pods showed before a restart counts",
        file: "crates/core/src/decide/gate/pods.rs",
        right: "(subject.cx.now < settled && is_doubtful)",
        wrong: "(false && subject.cx.now < settled && is_doubtful)",
    },
    Mistake {
        name: "what an init pod said before a restart counts",
        file: "crates/core/src/decide/gate/pods.rs",
        right: "(says_so && !said_it_before)",
        wrong: "(says_so || said_it_before)",
    },
    Mistake {
        name: "a node is opened before Karpenter has registered it",
        file: "crates/core/src/decide/scope.rs",
        right: "        && labels.get(names::KARPENTER_REGISTERED_LABEL).is_none_or(|value| value != \"true\")\n",
        wrong: "        && labels.get(names::KARPENTER_REGISTERED_LABEL).is_some_and(|value| value != \"true\")\n",
    },
    Mistake {
        name: "a node is closed although Karpenter does not know the gate",
        file: "crates/core/src/decide/scope.rs",
        right: "    let Some(pool) = subject.view.labels.get(names::KARPENTER_POOL_LABEL) else {",
        wrong: "    let Some(pool) = subject.view.labels.get(names::KARPENTER_POOL_LABEL).filter(|_| false) else {",
    },
    Mistake {
        name: "a node is deleted before the right to it was reserved",
        file: "crates/core/src/grants.rs",
        right: "        if entries.iter().any(|entry| entry.node == *node) {\n",
        wrong: "        if entries.len() < usize::MAX {\n",
    },
    Mistake {
        name: "deletions are not counted",
        file: "crates/core/src/grants.rs",
        right: "(used >= allowed).then_some",
        wrong: "(used > allowed + 1_000).then_some",
    },
    Mistake {
        name: "a node is deleted without looking at any other",
        file: "crates/core/src/decide/deletion.rs",
        right: "    state.compared.as_ref().is_some_and(fair) && is_recent(state.at)",
        wrong: "    state.compared.as_ref().is_none_or(fair) && is_recent(state.at)",
    },
    Mistake {
        name: "waiting goes by the clock of whoever wrote the state",
        file: "crates/core/src/decide/trial.rs",
        right: "next_try.min(later(seen, span))",
        wrong: "next_try.max(next_try.min(later(seen, span)))",
    },
    Mistake {
        name: "a lost answer keeps its place among the workers",
        file: "crates/core/src/grants.rs",
        right: "        self.slots.asked_for -= usize::from(was_for_worker);\n",
        wrong: "        self.slots.asked_for -= usize::from(was_for_worker && self.slots.asked_for > 9_000);\n",
    },
    Mistake {
        name: "a lost event is lost for good",
        file: "crates/core/src/engine.rs",
        right: "                plan.questions.push(Question::Everything);\n",
        wrong: "",
    },
    Mistake {
        name: "after a conflict the same thing is tried again unseen",
        file: "crates/core/src/engine/task.rs",
        right: "                plan.questions.push(Question::Node(node));\n",
        wrong: "                let _ = node;\n",
    },
    Mistake {
        name: "a replica that does not lead gives orders",
        file: "crates/core/src/engine.rs",
        right: "        if !self.leading {\n            return false;\n        }\n        self.pursue",
        wrong: "        self.pursue",
    },
    Mistake {
        name: "B1: a failure counts only once it is recorded",
        file: "crates/core/src/decide/survey.rs",
        right: "        Progress::Over(Verdict::Fail(fault)) => fault.blame != Blame::Installation,\n",
        wrong: "        Progress::Over(Verdict::Fail(_)) => false,\n",
    },
    Mistake {
        name: "B14: a node that has failed for long is given up",
        file: "crates/core/src/decide/trial/record.rs",
        right: "            next_try: Some(subject.cx.now + subject.cx.policy.retry.delay_after_attempt(attempt)),\n",
        wrong: "            next_try: Some(subject.cx.now + subject.cx.policy.retry.delay_after_attempt(attempt) * 1_000),\n",
    },
    Mistake {
        name: "B19: what failed before trouble in the cluster still counts after it",
        file: "crates/core/src/grants/fleet.rs",
        right: "            self.last_trouble = now;\n        }\n",
        wrong: "        }\n",
    },
    Mistake {
        name: "B19: a node is deleted although nobody has tried it since the checks passed elsewhere",
        file: "crates/core/src/decide/deletion.rs",
        right: "        None => Step::FinalAttempt,\n",
        wrong: "        None => delete(subject, state, grant),\n",
    },
    Mistake {
        name: "B2: a node whose runs say nothing about it is given up after too many of them",
        file: "crates/core/src/decide/trial/record.rs",
        right: "            next_try: Some(subject.cx.now + settings.delay_after(inconclusive)),\n",
        wrong: "            next_try: Some(subject.cx.now + settings.delay_after(inconclusive) * \
                if inconclusive < settings.max_inconclusive_runs { 1 } else { 1_000 }),\n",
    },
    Mistake {
        name: "B3: a node that failed and is paused or excluded counts as failing for good",
        file: "crates/core/src/decide/survey.rs",
        right: "    if !matches!(scope::of(&subject), Scope::Managed) {\n        return Member::default();\n",
        wrong: "    if !matches!(scope::of(&subject), Scope::Managed) {\n        \
                let failing = subject.state.filter(|state| state.is_failing());\n        \
                let failing_until = failing.map(|_| cx.now + counts_for(&subject) * 100);\n        \
                return Member { managed: failing.is_some(), failing_until, ..Member::default() };\n",
    },
    Mistake {
        name: "B4: nodes that are tried again keep newcomers waiting",
        file: "crates/core/src/engine/orders.rs",
        right: "            (true, true) => Turn::First,\n",
        wrong: "            (true, true) => Turn::Again,\n",
    },
    Mistake {
        name: "B5: a worker on a node that is not Ready holds a slot",
        file: "crates/core/src/grants/slots.rs",
        right: "            None => Hold::NotReady,\n",
        wrong: "            None => Hold::SlotUntil(Timestamp::MAX),\n",
    },
    Mistake {
        name: "B6: only ten nodes are looked at for a comparison",
        file: "crates/core/src/engine/orders.rs",
        right: "self.grants.fleet.references().find(is_free).cloned();",
        wrong: "self.world.entries().map(|(name, _)| name).take(10).find(is_free).cloned();",
    },
    Mistake {
        name: "B7: a write that is refused holds up all others of its node",
        file: "crates/core/src/engine/orders.rs",
        right: "                self.wake_by(name, until);\n                continue;\n",
        wrong: "                self.wake_by(name, until);\n                return false;\n",
    },
    Mistake {
        name: "B8: what was decided under another configuration is sent",
        file: "crates/core/src/engine.rs",
        right: "        self.consider_all();\n        for name in self.changed.clone() {\n",
        wrong: "        for name in self.changed.clone() {\n",
    },
    Mistake {
        name: "B9: deletions are counted by the clock of whoever wrote them down",
        file: "crates/core/src/world.rs",
        right: "                || seen.is_some_and(|seen| is_recent(seen, HOUR)) && is_recent(entry.at, DAY)\n",
        wrong: "                || seen.is_some_and(|seen| is_recent(seen, HOUR) && is_recent(entry.at, HOUR.min(DAY)))\n",
    },
];

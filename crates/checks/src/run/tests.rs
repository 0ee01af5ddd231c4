use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use knr_core::config::{Config, MtuSpec};
use tokio::time::sleep_until;

use super::*;
use crate::check::About;

/// What a fake check does at each attempt.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Pass,
    /// Fails this many times, and then passes.
    Fail(u32),
    /// Waits for its deadline and reports that, as a well-behaved check does.
    Wait,
    /// Ignores its deadline.
    Hang,
    /// Fails the first time, then waits.
    FailThenWait,
    Crash,
}

struct Fake {
    name: &'static str,
    behaviour: Behaviour,
    tries: Arc<AtomicU32>,
}

static FAKE: About =
    About { name: "fake", summary: "", kinds: &[(Kind::Refused, "a hint"), (Kind::Timeout, "patience")] };

impl Check for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &'static About {
        &FAKE
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        async move {
            let number = self.tries.fetch_add(1, Ordering::SeqCst) + 1;
            let waited = |cx: &Context| {
                let deadline = cx.deadline;
                async move {
                    sleep_until(deadline).await;
                    Trouble::new(Kind::Timeout, "waited").into()
                }
            };
            match self.behaviour {
                Behaviour::Pass => Outcome::Pass("seen".to_owned()),
                Behaviour::Fail(times) if number > times => Outcome::Pass(String::new()),
                Behaviour::Fail(_) => Trouble::new(Kind::Refused, format!("try {number}")).into(),
                Behaviour::FailThenWait if number == 1 => Trouble::new(Kind::Refused, "at once").into(),
                Behaviour::Wait | Behaviour::FailThenWait => waited(cx).await,
                Behaviour::Hang => pending().await,
                Behaviour::Crash => panic!("broken"),
            }
        }
        .boxed()
    }
}

/// Runs fake checks. `limits` are the total timeout, the timeout of each check, and the retries. Returns the results,
/// the number of attempts and the elapsed time.
async fn play(behaviours: &[Behaviour], limits: (u32, u32, u32)) -> (Vec<CheckResult>, Vec<u32>, Duration) {
    let (timeout_seconds, check_timeout_seconds, retries) = limits;
    let plan = CheckPlan { timeout_seconds, check_timeout_seconds, retries, ..CheckPlan::default() };
    let tries: Vec<Arc<AtomicU32>> = behaviours.iter().map(|_| Arc::default()).collect();
    let checks = behaviours.iter().zip(&tries).zip(["a", "b", "c", "d"]).map(|((behaviour, tries), name)| {
        Arc::new(Fake { name, behaviour: *behaviour, tries: tries.clone() }) as Arc<dyn Check>
    });
    let api = ApiAccess::Missing(String::new());
    let surroundings = Surroundings { node: None, api, kubernetes_service: None };
    let start = Instant::now();
    let results = run_all(checks.collect(), &plan, Arc::new(surroundings)).await;
    (results, tries.iter().map(|tries| tries.load(Ordering::SeqCst)).collect(), start.elapsed())
}

fn words(results: &[CheckResult]) -> Vec<String> {
    results
        .iter()
        .map(|check| match &check.outcome {
            CheckOutcome::Pass => format!("{} passed", check.name),
            CheckOutcome::Fail(failure) => format!("{} {}: {}", check.name, failure.kind, failure.detail),
            CheckOutcome::Skipped(why) => format!("{} skipped: {why}", check.name),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn one_bad_check_hides_no_other() {
    let all = [Behaviour::Hang, Behaviour::Pass, Behaviour::Crash, Behaviour::Wait];
    let (results, tries, time) = play(&all, (60, 10, 0)).await;
    let said = words(&results);
    assert_eq!(said[0], "a deadline: not done after 10.1 s");
    assert_eq!(said[1], "b passed");
    assert!(said[2].starts_with("c crashed: ") && said[2].contains("broken"), "{said:?}");
    assert_eq!(said[3], "d timeout: waited");
    assert_eq!(tries, [1, 1, 1, 1]);
    assert_eq!(time, Duration::from_millis(10_100), "they ran together");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_is_tried_again_with_growing_pauses() {
    let (results, tries, time) = play(&[Behaviour::Fail(2), Behaviour::Pass], (60, 10, 2)).await;
    assert_eq!(words(&results), ["a passed", "b passed"]);
    assert_eq!((tries, time.as_millis()), (vec![3, 1], 200 + 400));
    let (results, tries, time) = play(&[Behaviour::Fail(9)], (60, 10, 3)).await;
    assert_eq!(words(&results), ["a refused: try 4 (tried 4 times)"]);
    assert_eq!((tries, time.as_millis()), (vec![4], 200 + 400 + 800));
    let (results, ..) = play(&[Behaviour::Fail(1)], (60, 10, 0)).await;
    assert_eq!(words(&results), ["a refused: try 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_for_all_is_kept_and_some_of_it_is_left_for_the_report() {
    let (results, tries, time) = play(&[Behaviour::Wait], (25, 10, 10)).await;
    // The third attempt is cut short at 24 s, so the second one is reported.
    assert_eq!(words(&results), ["a timeout: waited (tried 2 times)"]);
    assert_eq!((tries, time), (vec![3], Duration::from_secs(24)));
    // The fourth pause would take too long.
    let (results, _, time) = play(&[Behaviour::Fail(99)], (2, 2, 10)).await;
    assert_eq!(words(&results), ["a refused: try 4 (tried 4 times)"]);
    assert_eq!(time.as_millis(), 200 + 400 + 800);
    let (_, _, time) = play(&[Behaviour::Hang], (5, 5, 0)).await;
    assert_eq!(time, Duration::from_millis(4_600), "a tenth is kept");
}

#[tokio::test(start_paused = true)]
async fn what_a_whole_try_said_is_not_lost_to_one_that_was_cut_short() {
    let (results, tries, _) = play(&[Behaviour::FailThenWait], (10, 10, 1)).await;
    assert_eq!((words(&results), tries), (vec!["a refused: at once".to_owned()], vec![2]));
    // An attempt that ended before the time was over was not cut short.
    let (results, tries, _) = play(&[Behaviour::Fail(2)], (10, 10, 2)).await;
    assert_eq!((words(&results), tries), (vec!["a passed".to_owned()], vec![3]));
}

#[tokio::test(start_paused = true)]
async fn the_reported_time_is_that_of_the_last_try() {
    let (results, ..) = play(&[Behaviour::FailThenWait, Behaviour::Pass], (60, 10, 1)).await;
    assert_eq!((results[0].millis, results[1].millis), (10_000, 0));
    assert_eq!(results[1].note, "seen");
}

#[test]
fn a_plan_becomes_checks_in_its_order() {
    let file = "worker: {skipChecks: [network], checks: [{name: x, mtu: {}}, {name: y, tcp: {address: 'a:1'}}, \
                {name: z, file: {path: /}}, {name: w, http: {url: 'http://a'}}]}";
    let plan = Config::parse(file).unwrap().worker.check_plan();
    let checks = build(&plan);
    let named: Vec<(&str, &str)> = checks.iter().map(|check| (check.name(), check.about().name)).collect();
    assert_eq!(
        named,
        [
            ("dns", "dns"),
            ("kubernetes", "kubernetes"),
            ("network", "network"),
            ("services", "services"),
            ("x", "mtu"),
            ("y", "tcp"),
            ("z", "file"),
            ("w", "http"),
        ]
    );
}

#[tokio::test]
async fn what_was_switched_off_is_reported_and_the_rest_runs() {
    let plan = CheckPlan {
        skip_checks: BuiltInCheck::ALL.to_vec(),
        checks: vec![CheckSpec {
            name: "frames".into(),
            tcp: None,
            http: None,
            file: None,
            mtu: Some(MtuSpec::default()),
        }],
        ..CheckPlan::default()
    };
    let report = run(&plan, Some("here"), ApiAccess::Missing("no kubeconfig".to_owned())).await;
    let off = "skipped: switched off by worker.skipChecks";
    let expected: Vec<String> = BuiltInCheck::ALL
        .iter()
        .map(|check| format!("{} {off}", check.name()))
        .chain(["frames skipped: no kubeconfig".to_owned()])
        .collect();
    assert_eq!(words(&report.checks), expected);
    assert_eq!(report.error, None);
}

#[test]
fn the_built_in_checks_are_described_in_their_order() {
    assert!(BuiltInCheck::ALL.iter().zip(ABOUT).all(|(check, about)| check.name() == about.name));
}

use super::*;
use crate::action::{EventReason, EventText};
use crate::config::Config;
use crate::ids::Version;
use crate::view::LedgerView;
use crate::world::Fact;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), uid: name.into() }
}

fn policy() -> Policy {
    Policy::from(&Config::parse("limits: {deletion: {maxPerHour: 1}}").unwrap())
}

/// A world in which these nodes were deleted recently.
fn world(deleted: &[&str]) -> World {
    let entries = deleted.iter().map(|name| LedgerEntry { node: node(name), at: noon() }).collect();
    let mut world = World::default();
    world.learn(Fact::Ledger(LedgerView { version: Version(1), entries }), noon());
    world
}

fn deletion(grants: &Grants, world: &World, name: &str) -> Result<Option<Action>, NotDeleted> {
    deletion_at(grants, world, name, noon())
}

fn deletion_at(
    grants: &Grants,
    world: &World,
    name: &str,
    now: Timestamp,
) -> Result<Option<Action>, NotDeleted> {
    match grants.deletion(&node(name), &policy(), world, now) {
        Deletion::Denied(why) => Err(why),
        Deletion::Reserved => Ok(None),
        Deletion::Free(reserve) => Ok(Some(reserve)),
    }
}

#[test]
fn a_deletion_waits_until_the_ledger_is_read_and_then_keeps_within_the_budget() {
    let grants = Grants::default();
    assert_eq!(deletion(&grants, &World::default(), "a"), Err(NotDeleted::LedgerUnread));
    assert!(matches!(deletion(&grants, &world(&[]), "a"), Ok(Some(Action::ReserveDeletion { .. }))));
    assert_eq!(deletion(&grants, &world(&["a"]), "a"), Ok(None));
    assert_eq!(deletion(&grants, &world(&["a"]), "b"), Err(NotDeleted::Budget { used: 1, allowed: 1 }));
}

#[test]
fn a_reservation_that_is_too_old_to_act_on_is_renewed() {
    let grants = Grants::default();
    let after = |minutes, deleted: &[&str]| {
        deletion_at(&grants, &world(deleted), "a", noon() + SignedDuration::from_mins(minutes))
    };
    assert_eq!(after(4, &["a"]), Ok(None));
    let Ok(Some(Action::ReserveDeletion { entries, .. })) = after(5, &["a"]) else { panic!("not renewed") };
    let renewed = LedgerEntry { node: node("a"), at: noon() + SignedDuration::from_mins(5) };
    assert_eq!(entries, [renewed], "its own entry is replaced, and does not count");
    assert_eq!(after(5, &["a", "b"]), Err(NotDeleted::Budget { used: 1, allowed: 1 }));
}

#[test]
fn a_node_that_is_about_to_be_deleted_is_known_until_its_order_is_settled() {
    let mut grants = Grants::default();
    let version = Version(1);
    let event = EventText { reason: EventReason::NodeDeleted, message: String::new(), warning: true };
    grants.ordered(&Action::DeleteNode { node: node("a"), version, claim: None, event }, noon());
    assert_eq!(grants.harmful().collect::<Vec<_>>(), [&NodeName::from("a")]);
    grants.settled(&"a".into());
    assert_eq!(grants.harmful().count(), 0);
}

#[test]
fn deletions_are_reserved_one_at_a_time() {
    let (mut grants, world) = (Grants::default(), world(&[]));
    let reserve = deletion(&grants, &world, "a").unwrap().unwrap();
    grants.ordered(&reserve, noon());
    assert_eq!(deletion(&grants, &world, "b"), Err(NotDeleted::Reserving));
    assert!(deletion(&grants, &world, "a").is_ok(), "it does not wait for itself");
    grants.settled(&"b".into());
    assert_eq!(deletion(&grants, &world, "b"), Err(NotDeleted::Reserving), "the answer was for another node");
    grants.settled(&"a".into());
    assert!(deletion(&grants, &world, "b").is_ok());
    grants.ordered(&reserve, noon());
    grants.clear();
    assert!(deletion(&grants, &world, "b").is_ok());
}

#[test]
fn no_more_final_attempts_are_under_way_than_nodes_may_still_be_deleted() {
    let mut grants = Grants::default();
    let denied = |grants: &Grants, name: &str, deleted: &[&str]| {
        grants.final_attempt(&name.into(), &policy(), &world(deleted), noon())
    };
    let used_up = Some(NotDeleted::OthersFirst);
    assert_eq!(denied(&grants, "a", &[]), None);
    assert_eq!(denied(&grants, "a", &["x"]), used_up);
    grants.note_final_attempt(&"a".into(), true);
    assert_eq!(denied(&grants, "a", &[]), None, "its own attempt does not count");
    assert_eq!(denied(&grants, "b", &[]), used_up);
    grants.note_final_attempt(&"a".into(), false);
    assert_eq!(denied(&grants, "b", &[]), None);
}

#[test]
fn no_more_nodes_are_asked_about_than_may_be_closed() {
    let mut grants = Grants::default();
    let may_ask = |grants: &Grants, name: &str| grants.may_ask(&name.into(), &policy());
    assert!(may_ask(&grants, "a"));
    grants.note_asked(&"a".into(), true);
    assert!(may_ask(&grants, "a"), "it does not wait for itself");
    assert!(!may_ask(&grants, "b"));
    grants.note_asked(&"a".into(), false);
    assert!(may_ask(&grants, "b"));
}

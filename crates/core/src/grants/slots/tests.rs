use super::*;
use crate::queue::testing::stamp;

fn slots(in_slots: usize, stuck: usize, not_ready: usize) -> Slots {
    Slots { total: Workers { in_slots, stuck, not_ready }, ..Slots::default() }
}

fn turns_with_room(slots: &Slots) -> Vec<Turn> {
    [Turn::First, Turn::Again, Turn::NotReady].into_iter().filter(|turn| slots.has_room(*turn, 2)).collect()
}

#[test]
fn a_node_that_was_never_tried_waits_for_nothing_but_a_slot() {
    assert_eq!(turns_with_room(&slots(1, 18, 0)), [Turn::First, Turn::Again, Turn::NotReady]);
    assert_eq!(turns_with_room(&slots(1, 18, 1)), [Turn::First, Turn::Again]);
    assert_eq!(turns_with_room(&slots(1, 19, 0)), [Turn::First]);
    assert_eq!(turns_with_room(&slots(1, 1_000, 1_000)), [Turn::First]);
    assert_eq!(turns_with_room(&slots(2, 0, 0)), []);
    let ordered = ["a", "b"].map(NodeName::from).into();
    assert_eq!(turns_with_room(&Slots { ordered, ..Slots::default() }), []);
}

#[test]
fn nodes_that_were_set_aside_come_back_as_slots_become_free_newcomers_first() {
    let mut slots = slots(2, 0, 0);
    for (name, turn) in [("a", Turn::Again), ("b", Turn::First), ("c", Turn::First), ("d", Turn::First)] {
        slots.enqueue(&name.into(), Some((turn, Timestamp::UNIX_EPOCH, stamp(name))));
        slots.set_aside(&name.into());
    }
    assert!(slots.are_wanted(), "they still wait");
    assert_eq!(slots.next(3), None, "another write is under way for each");
    slots.enqueue(&"b".into(), None);
    let taken = |slots: &mut Slots, of: usize| -> Vec<String> {
        slots.take_aside(of).iter().map(ToString::to_string).collect()
    };
    assert_eq!(taken(&mut slots, 2), [""; 0]);
    assert_eq!(taken(&mut slots, 3), ["c"]);
    assert_eq!(taken(&mut slots, 9), ["d", "a"]);
    assert!(!slots.are_wanted());
}

#[test]
fn stuck_workers_keep_nodes_aside_that_are_tried_again() {
    let mut slots = slots(0, 20, 0);
    slots.aside.set(&"a".into(), Some((Turn::Again, Timestamp::UNIX_EPOCH)));
    assert!(slots.take_aside(2).is_empty());
    slots.clear();
    assert!(!slots.are_wanted());
}

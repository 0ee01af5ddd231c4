use super::*;

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
    let asked = Slots { asked_for: 2, ..Slots::default() };
    assert_eq!(turns_with_room(&asked), []);
}

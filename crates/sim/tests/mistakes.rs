//! The list of mistakes keeps up with the rules. `make mistakes` checks that the simulation detects each of them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "../mistakes/list.rs"]
mod list;

use std::fs;
use std::path::Path;

#[test]
fn every_mistake_can_still_be_made() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for mistake in list::MISTAKES {
        let text = fs::read_to_string(root.join(mistake.file)).unwrap();
        let found = text.matches(mistake.right).count();
        assert_eq!(found, 1, "{}: its text is in {} {found} times", mistake.name, mistake.file);
        assert_ne!(mistake.right, mistake.wrong, "{}", mistake.name);
        let is_finding = mistake.name.starts_with('B') && mistake.name.contains(':');
        assert!(!is_finding || !mistake.noticed_by.is_empty(), "{}: name the rule", mistake.name);
    }
    assert!(list::MISTAKES.len() >= 12);
}

use super::*;

#[test]
fn the_marks_are_spread_over_all_slots() {
    let slots: Vec<Slot> = MARKS.iter().map(Slot::for_key).collect();
    for (part, mark) in slots.iter().enumerate() {
        let range = part * 256..(part + 1) * 256;
        assert!(range.clone().any(|slot| Slot::new(slot as u16) == Some(*mark)), "{range:?}");
    }
    // Nodes of different versions must agree on the names.
    assert_eq!(MARKS[0], "riskgate:{m60}:mark");
    assert_eq!(MARKS[63], "riskgate:{m30}:mark");
}

use super::*;

#[test]
fn each_filled_name_is_found_with_its_value() {
    let names: Vec<String> = (0..20_000).map(|n| format!("name-{n}.example")).collect();
    let key = [7; 16];
    let pairs = names.iter().map(|name| (name.as_str(), 1 + (name.len() % 5) as u16));
    let (all_buckets, slots) = fill_buckets(&key, pairs).unwrap();
    let count = all_buckets.len() / BUCKET_BYTES;
    let find = |name: &str| {
        find_entry_number(&all_buckets, hash_name(&key, name, count), |bucket, slot| {
            let number = slots[bucket * SLOTS_PER_BUCKET + slot] as usize;
            names[number - 1] == name
        })
    };
    for name in &names {
        assert_eq!(find(name), Some(1 + (name.len() % 5) as u16), "{name}");
    }
    assert!((0..20_000).all(|n| find(&format!("other-{n}.example")).is_none()));
}

#[test]
fn a_full_hash_collision_is_resolved_by_the_stored_name() {
    let key = [1; 16];
    let (mut all_buckets, _) =
        fill_buckets(&key, [("a.com", 1), ("a.com", 2)].into_iter()).unwrap();
    let name_hash = hash_name(&key, "a.com", all_buckets.len() / BUCKET_BYTES);
    assert_eq!(find_entry_number(&all_buckets, name_hash, |_, slot| slot == 1), Some(2));
    assert_eq!(find_entry_number(&all_buckets, name_hash, |_, _| false), None);
    all_buckets.truncate(BUCKET_BYTES / 2);
    assert_eq!(find_entry_number(&all_buckets, name_hash, |_, _| true), None);
}

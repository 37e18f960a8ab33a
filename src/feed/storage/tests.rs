use super::*;

#[test]
fn a_list_that_another_process_changed_has_no_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daily.disposable.txt");
    let mut state = FeedState::default();
    let text = FeedList::render_with_checksum(&["a.example".to_owned()]);
    write_list_and_fingerprint(&mut state, &path, &text).unwrap();
    assert_eq!(state.list_fingerprint, fingerprint_file(&path));
    assert!(state.list_fingerprint.is_some());
    let written = fs::read_to_string(&path).unwrap();
    fs::write(&path, &written[..written.len() - 1]).unwrap();
    assert_eq!(fingerprint_if_unchanged(&path, &written), None);
}

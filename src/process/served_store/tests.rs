use super::*;

#[test]
fn only_the_process_that_serves_from_the_directory_writes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, is_claimed) = (folder.path().join("store"), Arc::new(AtomicBool::new(false)));
    let mut file = ServedStoreFile::new(path.clone(), Arc::clone(&is_claimed));
    let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: Some(7) };
    file.update(&served).unwrap();
    assert!(!path.exists());
    is_claimed.store(true, Ordering::Release);
    file.update(&served).unwrap();
    assert_eq!(ServedStore::read(&path).unwrap(), served);
}

#[test]
fn a_failed_write_is_told_once_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/store");
    let mut file = ServedStoreFile::new(path.clone(), Arc::new(AtomicBool::new(true)));
    let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: None };
    file.update(&served).unwrap_err();
    std::fs::create_dir(folder.path().join("missing")).unwrap();
    file.update(&served).unwrap();
    assert!(!path.exists(), "a pause comes first");
    file.failed_at = file.failed_at.and_then(|at| at.checked_sub(SERVED_STORE_RETRY_PAUSE));
    file.update(&served).unwrap();
    assert_eq!(ServedStore::read(&path).unwrap(), served);
}

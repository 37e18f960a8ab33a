use super::*;

#[test]
fn a_directory_of_an_ended_process_is_removed_and_one_in_use_stays() {
    let parent = tempfile::tempdir().unwrap();
    let abandoned = parent.path().join("work-0");
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("half"), "a").unwrap();
    fs::write(parent.path().join("work-file"), "a").unwrap();
    let first = WorkDir::create_in(parent.path(), "work-").unwrap();
    assert!(!abandoned.exists());
    let second = WorkDir::create_in(parent.path(), "work-").unwrap();
    assert!(first.path().exists() && second.path().exists());
    assert!(parent.path().join("work-file").exists());
    let (one, other) = (first.path().to_owned(), second.path().to_owned());
    drop((first, second));
    assert!(!one.exists() && !other.exists());
}

#[test]
fn threads_can_create_directories_at_once() {
    let parent = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let work = WorkDir::create_in(parent.path(), "work-").unwrap();
                    fs::write(work.path().join("file"), "a").unwrap();
                    assert!(work.path().join("file").exists());
                }
            });
        }
    });
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

use super::*;

#[test]
fn more_memory_than_there_are_addresses_is_not_available() {
    check_available(1 << 20).unwrap();
    let error = check_available(u64::MAX).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("MiB of free memory, but found"), "{error}");
}

#[test]
fn the_group_with_the_least_free_memory_counts() {
    let root = tempfile::tempdir().unwrap();
    let write = |group: &str, name: &str, text: &str| {
        fs::create_dir_all(root.path().join(group)).unwrap();
        fs::write(root.path().join(group).join(name), text).unwrap();
    };
    let free = |own: &str| find_free_bytes_of_groups(root.path(), own);
    assert_eq!(free("0::/pod/app\n"), None);
    write("pod/app", "memory.max", "max\n");
    write("pod/app", "memory.current", "500\n");
    assert_eq!(free("0::/pod/app\n"), None);
    write("pod", "memory.max", "1000\n");
    write("pod", "memory.current", "900\n");
    assert_eq!(free("0::/pod/app\n"), Some(100));
    write("pod", "memory.stat", "anon 600\ninactive_file 300\n");
    assert_eq!(free("0::/pod/app\n"), Some(400));
    write("pod/app", "memory.max", "700\n");
    assert_eq!(free("0::/pod/app\n"), Some(200));
    write("memory/docker/a", "memory.limit_in_bytes", "90\n");
    write("memory/docker/a", "memory.usage_in_bytes", "20\n");
    assert_eq!(free("5:cpu:/x\n4:memory:/docker/a\n"), Some(70));
}

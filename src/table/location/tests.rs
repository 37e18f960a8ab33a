use super::*;

#[test]
fn the_bundled_files_are_exactly_those_of_the_manifest() {
    let manifest: toml::Table =
        SourceFiles::Bundled.read_text("manifest.toml").unwrap().unwrap().parse().unwrap();
    let mut in_manifest: Vec<&str> = manifest["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|list| list["file"].as_str().unwrap())
        .chain(["manifest.toml", "sources.toml"])
        .collect();
    let mut bundled: Vec<&str> = BUNDLED_FILES.iter().map(|(name, _)| *name).collect();
    in_manifest.sort_unstable();
    bundled.sort_unstable();
    assert_eq!(bundled, in_manifest);
}

#[test]
fn reading_rejects_outside_special_large_and_non_utf8_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = SourceFiles::Directory(folder.path());
    assert!(files.read_text("none.txt").unwrap().is_none());
    for name in ["../secret", "/etc/passwd", "a/b", "..", "."] {
        let text = files.read_text(name).unwrap_err().to_string();
        assert!(text.contains("expected the name of a file in this directory"), "{text}");
    }
    std::fs::create_dir(folder.path().join("dir.txt")).unwrap();
    let text = files.read_text("dir.txt").unwrap_err().to_string();
    assert!(text.ends_with("dir.txt: expected a regular file, but found a directory"), "{text}");
    let status = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(status.unwrap().success());
    let text = files.read_text("pipe").unwrap_err().to_string();
    assert!(text.ends_with("pipe: expected a regular file, but found a FIFO"), "{text}");
    std::fs::write(folder.path().join("bad.txt"), b"a.com\n\xff\n").unwrap();
    let text = files.read_text("bad.txt").unwrap_err().to_string();
    assert!(text.ends_with("bad.txt:2: expected valid UTF-8, but found other bytes"), "{text}");
    let large = std::fs::File::create(folder.path().join("large.txt")).unwrap();
    large.set_len(MAX_LIST_BYTES + 1).unwrap();
    let text = files.read_text("large.txt").unwrap_err().to_string();
    assert!(text.contains("expected at most 67108864 bytes"), "{text}");
}

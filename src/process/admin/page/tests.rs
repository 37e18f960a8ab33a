use super::*;

#[test]
fn each_file_of_the_page_is_served() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/admin/page");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if name == "index.html" { "/".to_owned() } else { format!("/page/{name}") };
        assert!(is_page_file(&path), "{name} is missing in FILES");
    }
}

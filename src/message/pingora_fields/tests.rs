use super::*;

#[test]
fn an_edited_request_keeps_all_but_the_case_of_its_names() {
    let mut header = RequestHeader::build("POST", b"http://asked.test/a", None).unwrap();
    header.append_header("X-Kept", "1").unwrap();
    header.append_header("X-Dropped", "2").unwrap();
    header.set_version(http::Version::HTTP_2);
    header.set_send_end_stream(false);
    edit_request(&mut header, b"/a\xff", |fields| drop(fields.remove("x-dropped"))).unwrap();
    assert_eq!((header.method.as_str(), header.raw_path()), ("POST", &b"/a\xff"[..]));
    assert_eq!(header.send_end_stream(), Some(false));
    let mut lines = Vec::new();
    header.header_to_h1_wire(&mut lines);
    assert_eq!(String::from_utf8_lossy(&lines), "x-kept: 1\r\n");
    let mut http1 = RequestHeader::build("GET", b"http://asked.test/a", None).unwrap();
    edit_request(&mut http1, b"/a", |_| {}).unwrap();
    assert_eq!(http1.raw_path(), b"/a");
}

#[test]
fn an_edited_response_keeps_all_but_the_case_of_its_names_and_its_phrase() {
    let mut header = ResponseHeader::build(404, None).unwrap();
    header.append_header("ETag", "1").unwrap();
    header.append_header("content-type", "text/plain").unwrap();
    header.set_reason_phrase(Some("Gone away")).unwrap();
    edit_response(&mut header, |_| {});
    assert_eq!((header.status.as_u16(), header.get_reason_phrase()), (404, Some("Not Found")));
    let mut lines = Vec::new();
    header.header_to_h1_wire(&mut lines);
    assert_eq!(String::from_utf8_lossy(&lines), "etag: 1\r\nContent-Type: text/plain\r\n");
}

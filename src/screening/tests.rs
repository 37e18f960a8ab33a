mod multipart_bodies;
mod readings_of_some_servers;
mod server_actions;

use super::*;

const URLENCODED: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const MULTIPART: &str = "multipart/form-data; boundary=xyz";
const EMAIL: &str = "Content-Disposition: form-data; name=\"email\"";

fn read(content_type: &str, body: &[u8]) -> Result<FieldValues, UnreadCause> {
    let fields = ["email", "user.email"].map(|name| FieldPath::parse(name).unwrap());
    let headers = BodyHeaders { content_type: Some(content_type.as_bytes()), is_encoded: false };
    read_field_values(headers, b"", ReceivedBody::of_whole_body(body), &fields)
}

#[track_caller]
fn assert_values(content_type: &str, body: impl AsRef<[u8]>, values: &[&str]) {
    let found = read(content_type, body.as_ref()).unwrap();
    assert_eq!(
        (found.values, found.unread),
        (values.iter().map(|&it| it.to_owned()).collect(), None)
    );
}

/// A multipart body with these parts: the header lines of each, and its content.
fn multipart(parts: &[(&str, &str)]) -> String {
    let part = |(header, content): &(&str, &str)| format!("--xyz\r\n{header}\r\n\r\n{content}\r\n");
    parts.iter().map(part).collect::<String>() + "--xyz--\r\n"
}

#[test]
fn all_values_of_a_posted_form_are_read() {
    for (body, values) in [
        ("email=a%40b.com", &["a@b.com"][..]),
        ("name=x&email=a@b.com&email=c@d.com", &["a@b.com", "c@d.com"]),
        ("user%5Bemail%5D=a%40b.com", &["a@b.com"]),
        ("%65mail=a@b.com", &["a@b.com"]),
        ("email[]=a@b.com&email[1]=c@d.com", &["a@b.com", "c@d.com"]),
        ("EMAIL=a@b.com", &["a@b.com"]),
        ("+email=+a@b.com+", &["a@b.com"]),
        ("email=a%2Bb@c.com", &["a+b@c.com"]),
        ("email=a%zz@b.com", &["a%zz@b.com"]),
        ("email=&email=a@b.com", &["a@b.com"]),
        ("user[email=a@b.com", &["a@b.com"]),
        ("!email=a@b.com&user['email']=c@d.com", &["a@b.com", "c@d.com"]),
        ("email==a@b.com", &["=a@b.com"]),
        ("email[label]=home&email[value]=a@b.com", &["a@b.com"]),
        ("email.x=12&email=a@b.com", &["a@b.com"]),
        ("email%00%ff=a@b.com", &["a@b.com"]),
        ("%25u0065mail=c@d.com&email=a@b.com", &["a@b.com"]),
    ] {
        assert_values(URLENCODED, body, values);
    }
}

#[test]
fn all_values_of_a_json_body_are_read() {
    for (body, values) in [
        (r#"{"email":"a@b.com"}"#, &["a@b.com"][..]),
        (r#"{"email":"a@b.com","email":"c@d.com"}"#, &["a@b.com", "c@d.com"]),
        (r#"{"e\u006dail":"a\u0040b.com"}"#, &["a@b.com"]),
        (r#"{"user":{"email":"a@b.com","name":"x"},"id":7}"#, &["a@b.com"]),
        (r#"{"user":[{"email":"a@b.com"},{"email":"c@d.com"}]}"#, &["a@b.com", "c@d.com"]),
        (r#"{"email":["a@b.com",["c@d.com"]]}"#, &["a@b.com", "c@d.com"]),
        (r#"{"email":{"value":"a@b.com","type":"work"}}"#, &["a@b.com"]),
        (r#"{"Email":"a@b.com"}"#, &["a@b.com"]),
        (r#"[{"email":"a@b.com"}]"#, &["a@b.com"]),
        (r#"{"user.email":"a@b.com"}"#, &["a@b.com"]),
        (r#" {"email":" a@b.com "} "#, &["a@b.com"]),
    ] {
        assert_values(JSON, body, values);
    }
    assert_values("application/json; charset=UTF-8", r#"{"email":"a@b.com"}"#, &["a@b.com"]);
}

#[test]
fn a_body_without_a_readable_value_says_why() {
    use UnreadCause::{Broken, NoField, OtherCharset, OtherType, TooLong};
    let deep = format!("{{\"email\":{}\"a@b.com\"{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let utf16: Vec<u8> =
        r#"{"email":"a@b.com"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let whole = multipart(&[(EMAIL, "a@b.com")]);
    let part = |header: &str| multipart(&[(header, "x")]).into_bytes();
    let email_with = |more: &str| part(&format!("{EMAIL}{more}"));
    for (content_type, body, cause) in [
        (JSON, b"".to_vec(), NoField),
        (JSON, b"[".to_vec(), Broken),
        (JSON, br#"{"email":'a@b.com'}"#.to_vec(), Broken),
        (JSON, b"{\"email\":\"a\xff@b.com\"}".to_vec(), OtherCharset),
        (JSON, deep.into_bytes(), Broken),
        (JSON, utf16, Broken),
        (JSON, br#"{"mail":"a@b.com"}"#.to_vec(), NoField),
        (JSON, br#"{"email":null,"user":{"email":7}}"#.to_vec(), NoField),
        (URLENCODED, b"name=x".to_vec(), NoField),
        (URLENCODED, b"email=%ff".to_vec(), OtherCharset),
        (URLENCODED, vec![b'x'; MAX_SCREENED_BODY_BYTES + 1], TooLong),
        ("application/json; charset=utf-16", b"{}".to_vec(), OtherCharset),
        (URLENCODED, br#"/**/{"email":"a@b.com"}"#.to_vec(), Broken),
        ("text/plain", b"email=a@b.com".to_vec(), OtherType),
        ("application/json, text/plain", b"{}".to_vec(), OtherType),
        ("multipart/form-data", whole.clone().into_bytes(), Broken),
        (MULTIPART, whole.replace("--xyz", "--abc").into_bytes(), Broken),
        // Only some servers take a file for a text, and decode a text.
        (MULTIPART, email_with("; filename=\"\""), Broken),
        (MULTIPART, email_with("; filename*=utf-8''a"), Broken),
        (MULTIPART, email_with("\r\nContent-Transfer-Encoding: base64"), Broken),
        (MULTIPART, email_with("\r\nContent-Type: text/plain; charset=utf-16"), Broken),
        (MULTIPART, email_with("\r\nContent-Type: text; charset=utf-16"), Broken),
        // hapi adds it to the field before it.
        (MULTIPART, part("Content-Disposition: form-data\r\nX: y"), Broken),
        // Tomcat may decode it, and riskgate can't.
        (MULTIPART, part("Content-Disposition: form-data; name=\"=?utf-16?B?ZQBt?=\""), Broken),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(read(content_type, &body), Err(cause), "{content_type}: {shown}");
    }
}

#[test]
fn plain_names_are_read_behind_too_many_costly_names() {
    let form = |pair: &str, count| {
        let pairs = vec![pair; count].join("&");
        format!("email=a@b.com&{pairs}&email=c@d.com&email[]=e@f.com&%65mail=g@h.com")
    };
    let read = |pair: &str, count| {
        let found = read(URLENCODED, form(pair, count).as_bytes()).unwrap();
        (found.values.len(), found.unread)
    };
    // `email[]` is costly, and both it and `%65mail` must be decoded.
    for (pair, most) in [("%2565mail=", 4_094), ("emailx[]=", 255), ("email\u{e4}=", 255)] {
        assert_eq!(read(pair, most), (4, None), "{pair}");
    }
    assert_eq!(read("%2565mail=", 4_096), (2, Some(UnreadCause::Broken)));
    assert_eq!(read("emailx[]=", 256), (3, Some(UnreadCause::Broken)));
    assert_eq!(read("%u0065mail.x=", 256), (3, Some(UnreadCause::Broken)));
    for pair in ["", "x=1", "xemail[]=", "\u{e4}email=", "user[ids][]=1"] {
        assert_eq!(read(pair, 4_000), (4, None), "{pair}");
    }
    assert_eq!(read("", 40_000), (4, None));
}

#[test]
fn a_value_that_a_server_finds_in_another_kind_of_body_is_reported() {
    let hidden = multipart(&[(EMAIL, "c@d.com")]);
    let decoy = multipart(&[("Content-Disposition: form-data; name=\"x\"", "&email=a@b.com&")]);
    let whole = multipart(&[(EMAIL, "a@b.com")]);
    for (content_type, body) in [
        // Go and Jackson.
        (MULTIPART, format!("{{\"email\":\"c@d.com\"}}\r\n{whole}")),
        (URLENCODED, ")]}'&email=a@b.com".to_owned()),
        (URLENCODED, "#&email=a@b.com".to_owned()),
        // Ruby.
        (MULTIPART, format!("/*\r\n{whole}*/{{\"email\":\"c@d.com\"}}")),
        (URLENCODED, r#"/*&email=a@b.com&*/{"email":"c@d.com"}"#.to_owned()),
        // OpenResty and Cowboy.
        (MULTIPART, format!("email=c@d.com&\r\n{whole}")),
        (MULTIPART, decoy.replace("a@b.com", "c%40d.com").replace("--xyz--\r\n", &whole)),
        // Bottle and others.
        (JSON, r#"{"email":"a@b.com","x":"&email=c@d.com&"}"#.to_owned()),
        ("text/plain", r#"{"email":"a@b.com","x":"&email=c@d.com&"}"#.to_owned()),
        (
            "application/x-www-form-urlencoded+json",
            r#"{"email":"a@b.com","x":"&email=c@d.com&"}"#.into(),
        ),
        // formidable.
        (
            "application/x-www-form-urlencoded; x=multipart; boundary=xyz",
            format!("{decoy}{hidden}"),
        ),
    ] {
        let found = read(content_type, body.as_bytes()).unwrap();
        assert_eq!(
            (found.values, found.unread),
            (vec!["a@b.com".into()], Some(UnreadCause::Broken))
        );
    }
    assert_values(JSON, r#"{"email":"a@b.com","x":"a=b&c=d"}"#, &["a@b.com"]);
    for body in [
        r#"{"email":"a@b.com","x":"&email=c@d.com"}"#,
        r#"{"email":"a@b.com","x":";email=c%40d.com"}"#,
        r#"{"email":"a@b.com","x":"&email=a@b.com <c@d.com>"}"#,
        r#"{"email":"a@b.com","x":"&email=\"c@d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=\nc@d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=a@b.com.c.org"}"#,
        "{\"email\":\"a@b.com\",\"x\":\"&email=c\u{ff20}d.com\"}",
    ] {
        for content_type in [JSON, "text/plain"] {
            let found = read(content_type, body.as_bytes()).unwrap();
            assert_eq!(found.unread, Some(UnreadCause::Broken), "{content_type}: {body}");
        }
    }
    // Bottle reads it.
    assert_eq!(read(JSON, b"email=c@d.com"), Err(UnreadCause::Broken));
    let link = "Content-Disposition: form-data; name=\"link\"";
    for content in ["/?a=b&email=a%40b.com", "/?a=b&email=", "/?a=b&email=%20\r\n&email=1"] {
        assert_values(MULTIPART, multipart(&[(link, content), (EMAIL, "a@b.com")]), &["a@b.com"]);
    }
    for content in [
        "(https://s.ex/?id=1&email=a%2Bn%40b.com) does not work",
        "https://s.ex/?id=1&email=a%2Bn%40b.com does not work.",
        "https://s.ex/?id=1&email=a%2Bn%40b.com.",
        "<a href='/?id=1&email=a+n@b.com'>here</a>",
        "/?id=1&email=a+n@b.com#top",
    ] {
        let body = multipart(&[(link, content), (EMAIL, "a+n@b.com")]);
        assert_values(MULTIPART, body, &["a+n@b.com"]);
    }
    for content in ["&email=a@b.com <c@d.com>", "&email=c\u{ff20}d.com&"] {
        let found = read(MULTIPART, multipart(&[(link, content), (EMAIL, "a@b.com")]).as_bytes());
        assert_eq!(found.unwrap().unread, Some(UnreadCause::Broken), "{content}");
    }
}

#[test]
fn a_value_in_json_may_go_on_behind_a_semicolon_or_the_end_of_its_text() {
    for body in [
        r#"{"email":"a@b.com","x":"&email=a@b.com;c@d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=(","y":")c@d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=a@b.com(","y":").d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=a@b.com (","y":").d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=","y":"c@d.com&"}"#,
        r#"{"email":"a@b.com","x":"&email=<","y":"c@d.com>&"}"#,
        r#"{"email":"a@b.com","x":"&email=foo","y":"c%40d.com&"}"#,
        "{\"email\":\"a@b.com\",\"x\":\"&email=(\",\n\"y\":\")c@d.com&\"}",
    ] {
        for content_type in [JSON, "text/plain"] {
            let found = read(content_type, body.as_bytes()).unwrap();
            assert_eq!(found.unread, Some(UnreadCause::Broken), "{content_type}: {body}");
        }
    }
}

#[test]
fn a_link_to_the_form_beside_the_address_is_no_second_one() {
    for (address, text) in [
        ("jo@gmail.com", "https://x.de/signup?utm_source=nl&email=jo%40gmail.com#form"),
        ("jo+a@gmail.com", "https://x.de/signup?utm_source=nl&email=jo+a@gmail.com"),
        ("jo@gmail.com", "https://x.de/signup?utm_source=nl&email=*|EMAIL|*"),
        ("jo@gmail.com", "https://x.de/signup?utm_source=nl&email=foo"),
        ("jo@gmail.com", "I do sales&email=marketing all day"),
        ("Jo@gmail.com", "https://x.de/signup?utm_source=nl&email=jo%40gmail.com"),
        ("jo@gmail.com", "https://x.de/signup?utm_source=nl&amp;email=JO@gmail.com."),
        ("jo@gmail.com", "<https://x.de/?a=1&email=jo@gmail.com|link> **y**"),
        ("jo@gmail.com", "**https://x.de/?a=1&email=jo@gmail.com**"),
        ("jo@gmail.com", "https://x.de/?a=1&email=jo@gmail.com/"),
    ] {
        let link = "Content-Disposition: form-data; name=\"link\"";
        assert_values(MULTIPART, multipart(&[(link, text), (EMAIL, address)]), &[address]);
        for body in [
            format!(r#"{{"email":"{address}","x":"{text}"}}"#),
            format!(r#"{{"x":"{text}","email":"{address}","friend":"me@y.org"}}"#),
            format!(r#"{{"x":"see {text}\nThanks","email":"{address}"}}"#),
            format!(r#"{{"x":"<a href=\"{text}\">here</a>","email":"{address}"}}"#),
        ] {
            assert_values(JSON, &body, &[address]);
            assert_values("text/plain", &body, &[address]);
        }
    }
}

/// Bottle reads JSON as a form, and does not decode the escapes of a text.
#[test]
fn an_escape_behind_a_link_in_json_may_end_the_link() {
    let body = |behind: &str| {
        let link = format!("https://x.de/?a=1&email=jo%40gmail.com{behind}");
        format!(r#"{{"email":"jo@gmail.com","x":"{link}","friend":"me@y.org"}}"#)
    };
    for behind in
        [r"\t", r"\u003e", r"\u003E next", r"\u003cbr\u003e", r"\u0022", r"\u0027", r"\u00a0next"]
    {
        assert_values(JSON, body(behind), &["jo@gmail.com"]);
    }
    for behind in [
        r"\u002eevil.com",
        r"\u003ex\u0040evil.com",
        r"\u003cbr\u003e.evil.com",
        r"\u003cbr\u003eevil.com",
        r"\u003e.evil.com",
        r"\t.evil.com",
        r"\tevil.com",
        r"\u003cevil.com",
        r"\u006d",
        r"\b",
        r"\ud83d\ude00",
    ] {
        let found = read(JSON, body(behind).as_bytes()).unwrap();
        assert_eq!(found.unread, Some(UnreadCause::Broken), "{behind}");
    }
}

#[test]
fn an_upload_is_no_form() {
    let file = "Content-Disposition: form-data; name=\"file\"; filename=\"a\"";
    for line in [
        "<a href=\"/?a=%20&amp;email=me%40d.com&amp;b=%41\">",
        "&nbsp;<td class=\"email%20\">x@y.com</td>",
        "\"&email=\"+encodeURIComponent(x)",
    ] {
        let upload = format!("{line}\n").repeat(60_000 / line.len());
        let body = multipart(&[(file, &upload), (EMAIL, "a@b.com")]);
        assert_values(MULTIPART, body, &["a@b.com"]);
    }
}

#[test]
fn a_name_that_some_server_reads_without_its_bad_characters_is_read_and_reported() {
    for (content_type, body) in [
        (JSON, &b"{\"EMAIL\":\"a@b.com\",\"em\xffail\":\"c@d.com\"}"[..]),
        (JSON, b"{\"EMAIL\":\"a@b.com\",\"us\xffer\":{\"email\":\"c@d.com\"}}"),
        (JSON, b"{\"EMAIL\":\"a@b.com\",\"em\\ud800ail\":\"c@d.com\"}"),
        (JSON, "{\"EMAIL\":\"a@b.com\",\"\u{feff}email\":\"c@d.com\"}".as_bytes()),
        (URLENCODED, b"EMAIL=a@b.com&em%ffail=c@d.com"),
        (URLENCODED, b"EMAIL=a@b.com&em\xffail=c@d.com"),
        (URLENCODED, b"EMAIL=a@b.com&%ef%bb%bfuser[email]=c@d.com"),
    ] {
        let found = read(content_type, body).unwrap();
        let expected = (vec!["a@b.com".into(), "c@d.com".into()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected, "{}", String::from_utf8_lossy(body));
    }
    assert_values(JSON, b"{\"email\":\"a@b.com\",\"n\xff\":\"c@d.com\"}", &["a@b.com"]);
}

#[test]
fn a_name_below_another_may_have_parts_and_indexes() {
    for body in [
        r#"{"0":{"email":"a@b.com"},"1":{"email":"c@d.com"}}"#,
        r#"{"0":{"user":{"email":"a@b.com"}},"1":{"user":{"email":"c@d.com"}}}"#,
        r#"[{"user":{"[email]":"a@b.com"}},{"user[0]":{"email":"c@d.com"}}]"#,
    ] {
        assert_values(JSON, body, &["a@b.com", "c@d.com"]);
    }
    let of_livewire = FieldPath::parse("components.updates.form.email").unwrap();
    let headers = BodyHeaders { content_type: Some(JSON.as_bytes()), is_encoded: false };
    let body = br#"{"components":[{"updates":{"form.email":"a@b.com"}}]}"#;
    let found = read_body_values(headers, ReceivedBody::of_whole_body(body), &[of_livewire]);
    assert_eq!((found.values, found.unread), (vec!["a@b.com".to_owned()], None));
    for body in [
        r#"{"0":{"1":{"2":{"email":"a@b.com"}}}}"#,
        r#"{"x":{"email":"a@b.com"}}"#,
        r#"{"x":{"user.email":"a@b.com"}}"#,
    ] {
        assert_eq!(read(JSON, body.as_bytes()), Err(UnreadCause::NoField), "{body}");
    }
}

#[test]
fn an_object_with_the_name_and_the_value_of_a_field_is_read() {
    for body in [
        r#"{"formFields":[{"id":"password","value":"P@ss.word"},{"id":"email","value":"a@b.com"}]}"#,
        r#"{"UserAttributes":[{"Name":"email","Value":"a@b.com"},{"Name":"website","Value":"https://c.com/@d.e"}]}"#,
        r#"[{"value":"a@b.com","objectTypeId":"0-1","name":"user.email"}]"#,
        r#"[{"name":"email","value":"a@b.com"},{"name":"email","value":"blur"}]"#,
        r#"{"name":"email","value":["a@b.com","blur",1]}"#,
        r#"{"name":"email","value":[{"value":"c@d.com"},["a@b.com"]]}"#,
        r#"{"value":["c@d.com",{"name":"email","value":"a@b.com"}]}"#,
    ] {
        assert_values(JSON, body, &["a@b.com"]);
    }
    let body =
        r#"[{"name":{"name":"email"},"value":"a@b.com"},{"name":"text","value":["c@d.com"]}]"#;
    assert_eq!(read(JSON, body.as_bytes()), Err(UnreadCause::NoField));
}

#[test]
fn a_text_below_a_field_that_is_no_address_is_not_judged() {
    for text in ["P@ssw0rd!", "https://medium.com/@jane", "meet @ 5", "@", "@@", "a@b"] {
        let body = format!(r#"{{"email":{{"address":"a@b.com","note":"{text}"}}}}"#);
        assert_values(JSON, body, &["a@b.com"]);
        assert_values(
            URLENCODED,
            format!("email[address]=a@b.com&email[note]={text}"),
            &["a@b.com"],
        );
    }
    for text in
        ["c@d.com", "Jane <c@d.com>", "c@ d.com", "c\u{ff20}d.com", "c@d\u{3002}com", "x@y c@d.com"]
    {
        let body = format!(r#"{{"email":{{"address":"a@b.com","note":"{text}"}}}}"#);
        assert_values(JSON, body, &["a@b.com", text]);
    }
    for text in ["c@d .com", "c@(d e)f.com", "meet @ 5. Bye"] {
        let body = format!(r#"{{"email":{{"address":"a@b.com","note":"{text}"}}}}"#);
        let found = read(JSON, body.as_bytes()).unwrap();
        assert_eq!(
            (found.values.as_slice(), found.unread),
            (&["a@b.com".to_owned()][..], Some(UnreadCause::Broken))
        );
    }
    for marker in ["_email=on", "!email=x"] {
        assert_values(URLENCODED, format!("email=a@b.com&{marker}"), &["a@b.com"]);
    }
}

#[test]
fn json_that_clients_write_is_read() {
    for (content_type, body) in [
        ("application/vnd.api+json", r#"{"user":{"email":"a@b.com"}}"#),
        ("text/json", r#"{"email":"a@b.com"}"#),
        ("application/x-amz-json-1.1", r#"{"email":"a@b.com"}"#),
        ("application/json-rpc", r#"{"email":"a@b.com"}"#),
        ("text/plain;charset=UTF-8", r#"{"email":"a@b.com"}"#),
        ("application/json; charset=ISO-8859-1", r#"{"email":"a@b.com"}"#),
        (JSON, "\u{feff}{\"email\":\"a@b.com\"}"),
        (JSON, r#"{"x":[1e999,-1.5E+400],"email":"a@b.com","y":"1e999 \"1e999"}"#),
        (JSON, r#"{"name":"cut \ud83d","email":"a@b.com","x":"\\ud83d \ude00\ud83d\ude00"}"#),
    ] {
        assert_values(content_type, body, &["a@b.com"]);
    }
    let latin1 = b"{\"name\":\"J\xfcrgen\",\"email\":\"a@b.com\"}";
    assert_values("application/json; charset=ISO-8859-1", latin1, &["a@b.com"]);
    assert_values(JSON, latin1, &["a@b.com"]);
}

#[test]
fn what_was_read_of_a_broken_text_is_kept_and_reported() {
    for (content_type, body) in [
        (JSON, r#"{"email":"a@b.com""#.to_owned()),
        (JSON, r#"{"email":"a@b.com"}{}"#.to_owned()),
        (JSON, r#"{"email":"a@b.com",}"#.to_owned()),
        (JSON, r#"{"email":"a@b.com","x":01e999}"#.to_owned()),
        (JSON, r#"{"email":"a@b.com","x":1e999.5}"#.to_owned()),
        (URLENCODED, r#"{"email":"x","x":"&email=a@b.com"#.to_owned()),
        (URLENCODED, "\u{feff}email=a@b.com".to_owned()),
        (URLENCODED, "?email=a@b.com".to_owned()),
        // ASP.NET decodes it.
        (URLENCODED, "%u0065mail=a@b.com".to_owned()),
        ("text/plain", r#"{"email":"a@b.com"} x"#.to_owned()),
    ] {
        let found = read(content_type, body.as_bytes()).expect(&body);
        let expected = (vec!["a@b.com".to_owned()], Some(UnreadCause::Broken));
        assert_eq!((found.values, found.unread), expected, "{content_type}: {body}");
    }
}

#[test]
fn fields_beside_a_semicolon_are_read_in_one_way_and_reported() {
    for (body, values) in [
        ("email=a@b.com;email=c@d.com", &["a@b.com", "c@d.com"][..]),
        ("x=1;email=c@d.com", &["c@d.com"]),
        ("email=a@b.com;name=x", &["a@b.com"]),
        ("email=a@b.com&email=;c@d.com", &["a@b.com"]),
        ("email=a@b.com&email=a@b.com;c@d.com", &["a@b.com"]),
    ] {
        let found = read(URLENCODED, body.as_bytes()).unwrap();
        assert_eq!(found.values, values);
        assert_eq!(found.unread, Some(UnreadCause::Broken));
    }
    assert_values(URLENCODED, "email=a@b.com&x=1;y=2", &["a@b.com"]);
}

#[test]
fn beyond_16_values_a_form_is_not_read_completely() {
    let many: Vec<String> = (0..17).map(|number| format!("email=a{number}@b.com")).collect();
    let found = read(URLENCODED, many[..16].join("&").as_bytes()).unwrap();
    assert_eq!((found.values.len(), found.unread), (16, None));
    let list = format!("email={}", ["a@b.com"; 9].join(","));
    assert_eq!(read(URLENCODED, list.as_bytes()).unwrap().unread, Some(UnreadCause::Broken));
    let found = read(URLENCODED, many.join("&").as_bytes()).unwrap();
    assert_eq!((found.values.len(), found.unread), (16, Some(UnreadCause::Broken)));
}

#[test]
fn an_unreadable_value_beside_a_readable_one_is_reported() {
    let found = read(URLENCODED, b"email=a@b.com&email=%ff").unwrap();
    assert_eq!(found.values, ["a@b.com"]);
    assert_eq!(found.unread, Some(UnreadCause::OtherCharset));
}

#[test]
fn the_query_is_read_beside_the_body() {
    let fields = [FieldPath::parse("email").unwrap()];
    let form = BodyHeaders { content_type: Some(URLENCODED.as_bytes()), is_encoded: false };
    let read = |query: &[u8], body: &[u8]| {
        read_field_values(form, query, ReceivedBody::of_whole_body(body), &fields)
    };
    let both = read(b"email=a@b.com", b"email=c@d.com").unwrap();
    assert_eq!((both.values, both.unread), (vec!["c@d.com".into(), "a@b.com".into()], None));
    assert_eq!(read(b"email=a@b.com", b"x=1").unwrap().values, ["a@b.com"]);
    let beside_unread = read(b"email=a@b.com", b"{}").unwrap();
    assert_eq!(beside_unread.unread, Some(UnreadCause::Broken));
    let unread_query = read(b"email=%ff", b"email=a@b.com").unwrap();
    assert_eq!(unread_query.unread, Some(UnreadCause::OtherCharset));
    assert_eq!(read(b"x=1", b"x=1"), Err(UnreadCause::NoField));
    let from_link = read(b"email=bob+x@b.com", b"email=bob%2Bx%40b.com").unwrap();
    assert_eq!((from_link.values, from_link.unread), (vec!["bob+x@b.com".into()], None));
    let of_another = read(b"email=bob+y@b.com", b"email=bob%2Bx%40b.com").unwrap();
    assert_eq!(of_another.values, ["bob+x@b.com", "bob y@b.com"]);
}

#[test]
fn an_encoded_body_or_one_without_a_single_type_is_not_read() {
    let fields = [FieldPath::parse("email").unwrap()];
    let encoded = BodyHeaders { content_type: Some(URLENCODED.as_bytes()), is_encoded: true };
    assert_eq!(
        read_field_values(encoded, b"", ReceivedBody::of_whole_body(b"email=x"), &fields),
        Err(UnreadCause::Encoded)
    );
    let none = BodyHeaders::default();
    assert_eq!(
        read_field_values(none, b"", ReceivedBody::of_whole_body(b"email=x"), &fields),
        Err(UnreadCause::OtherType)
    );
}

#[test]
fn quoted_printable_without_an_escape_is_the_text_itself() {
    let header = format!("{EMAIL}\r\nContent-Transfer-Encoding: quoted-printable");
    assert_values(MULTIPART, multipart(&[(&header, "a@b.com")]), &["a@b.com"]);
    let escaped = read(MULTIPART, multipart(&[(&header, "a=40b.com")]).as_bytes());
    assert_eq!(escaped, Err(UnreadCause::Broken));
}

#[test]
fn a_thousand_fields_are_read_and_values_are_not_repeated() {
    let body = (0..1_000).map(|n| format!("f{n}=x")).collect::<Vec<_>>().join("&");
    assert_values(URLENCODED, format!("{body}&email=a@b.com&email=a@b.com"), &["a@b.com"]);
}

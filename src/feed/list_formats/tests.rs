use super::*;

#[test]
fn names_are_parsed_from_lists_as_people_publish_them() {
    for text in [
        "b.com\na.com\n",
        "# Ours\n A.com # why\n\n\tb.com\n",
        "\u{feff}domain,rank\na.com,1\nb.com,2\n",
        "\"a.com\",1\r\n\"b.com\",2\r\n",
        "[\"a.com\", \"b.com\", \"a.com\"]",
        "[\n  \"*.a.com\",\n  \".b.com\"\n]\n",
        "127.0.0.1 localhost localhost.localdomain\n::1 ip6-localhost\n0.0.0.0 0.0.0.0\n\
         # more\n0.0.0.0 a.com # why\n0.0.0.0\tb.com www.b.com a.com\n\
         255.255.255.255 broadcasthost\n",
        "[Adblock Plus 2.0]\n! Title: mail\n||a.com^\n||b.com^$third-party,important\n\
         @@||good.com^\n",
        "[Adblock Plus 2.0]\r\n||a.com^\r\n||b.com^\r\n",
        "# Ours\ra.com\rb.com\r",
        "*.a.com\n.b.com\n",
        "domain,mx\na.com,mx.good.com\nb.com,mx.good.com\n",
        "a.com // why\n// nothing\nb.com;x\na.com\t# why\nb.com#why\n",
    ] {
        let mut names = parse_names("x", text.as_bytes()).unwrap();
        names.retain(|name| name != "www.b.com");
        assert_eq!(names, ["a.com", "b.com"], "{text}");
    }
}

#[test]
fn other_texts_and_rules_that_list_no_name_are_rejected() {
    for (text, expected) in [
        ("", "an empty one"),
        ("# nothing\n", "an empty one"),
        ("! nothing\n@@||good.com^\n", "an empty one"),
        ("[]", "an empty one"),
        (" <!doctype html>", "HTML"),
        (
            "{\"a\": 1}",
            "1 of 1 lines that are none; write a JSON array of names, or one name on each line",
        ),
        (
            "https://a.com/\nhttp://b.com\n",
            "2 of 2 lines that are none; write each name without https:// before it and without a \
             path",
        ),
        ("@a.com\n@b.com\n", "none; write each name without the @ before it"),
        ("rank,domain\n1,a.com\n2,b.com\n", "none; write the name as the first column"),
        (
            "address=/a.com/0.0.0.0\nlocal=/b.com/\n",
            "none; write the name between the slashes alone, one on each line",
        ),
        ("[1]", "JSON that is no array of names, at line 1, column 2"),
        ("a..com\n-b.com\n", "2 of 2 lines that are none, the first one \"a..com\""),
        ("site.com##.banner\nother.com#@#.x\n", "lines that are none"),
        ("||a.com^$domain=b.com\n||c.com/path^x\n", "lines that are none"),
        ("192.168.0.1 router.example.com\n10.0.0.1 nas.example.com\n", "lines that are none"),
    ] {
        let error = parse_names("x", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for secret in [
        "jane@x.com\njohn@x.com",
        "jane doe@x.com\njohn doe@x.com",
        "a..b doe@x.com\njohn doe@x.com",
        "https://u:pass@x.com/\n-",
        "hunter2",
        "0123456789abcdef0123456789abcdef",
        "9f3c2c1e-3b0c-4a4e-9a39-6a1f0d5e1b7c",
        "[\"hunter2\"]",
    ] {
        let error = parse_names("x", secret.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with("lines that are none"), "{error}");
    }
    let error = parse_names("x", b"{\"token\": \"tok_1\"}").unwrap_err().to_string();
    assert!(error.ends_with("or one name on each line") && !error.contains("tok"), "{error}");
    assert_eq!(parse_names("x", b"bad.com mx.bad.com").unwrap(), ["bad.com"]);
    for line in
        ["a.com b.com c.com", "# Ours\na.com,b.com,c.com\n", "\"a.com\"; \"b.com\";\"c.com\""]
    {
        let error = parse_names("x", line.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with("expected one name on each line, but found 3 on one"), "{error}");
    }
    let utf_16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{feff}a.com\n".encode_utf16().flat_map(bytes).collect()
    };
    for (bytes, expected) in [
        (b"a.com\n\xff".to_vec(), "no UTF-8"),
        (b"\x1f\x8b\x08\0".to_vec(), "a file in gzip"),
        (utf_16(u16::to_le_bytes), "UTF-16 instead of UTF-8"),
        (utf_16(u16::to_be_bytes), "UTF-16 instead of UTF-8"),
        (utf_16(u16::to_le_bytes)[2..].to_vec(), "zero bytes, as in UTF-16"),
    ] {
        let error = parse_names("x", &bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{bytes:?}: {error}");
    }
}

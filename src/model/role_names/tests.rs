use super::*;

#[test]
fn the_names_are_sorted_and_have_no_separator() {
    for names in [&ROLE_NAMES[..], &LEADING_ROLE_NAMES, &WORDS_BESIDE_ROLE_NAMES] {
        assert!(names.is_sorted_by(|a, b| a < b));
        assert!(names.iter().all(|name| !name.contains(['-', '_', '.', '+', '"'])));
        assert!(names.iter().all(|name| name.to_lowercase() == **name));
        assert!(!names.iter().any(|name| name.contains(|c: char| c.is_ascii_digit())));
    }
    assert!(LEADING_ROLE_NAMES.iter().all(|name| ROLE_NAMES.contains(name)));
    assert!(WORDS_BESIDE_ROLE_NAMES.iter().all(|word| !ROLE_NAMES.contains(word)));
}

#[test]
fn role_names_of_several_words_and_languages_are_recognized() {
    for name in [
        "sales-team",
        "info.berlin",
        "kontakt",
        "ventas",
        "no-reply",
        "do.not.reply",
        "contact_us",
        "web-master",
        "accounts.payable",
        "it-support",
        "us.sales",
        "atencion-al-cliente",
        "recursos.humanos",
        "ne-pas-repondre",
        "service.client",
        "nao-responda",
        "buchhaltung",
        "suporte-br",
        "segreteria.roma",
        "客服",
        "поддержка",
        "kefu",
        "sampark",
        "investor-relations",
        "it.services",
        "risorse.umane",
        "kanzlei",
        "obsluga",
        "отдел",
        "ketoan",
        "layanan",
        "受付",
        "채용",
        "دعم",
    ] {
        assert!(is_role_name(name), "{name}");
    }
}

#[test]
fn names_of_people_are_no_role_names() {
    for name in [
        "li.st",
        "ad.min",
        "mark.eting",
        "h.r",
        "i_t",
        "d.n.s",
        "reply-to-jane",
        "pedro.sales",
        "sales.pedro",
        "steve.jobs",
        "jobs.steve",
        "emily.post",
        "jane.info",
        "informer",
        "salesman",
        "kontakter",
        "al.press",
        "",
        "-",
        "do.not",
        "aide",
        "kadry",
        "shangwu",
        "shichang",
        "investor",
        "koho",
        "sav",
    ] {
        assert!(!is_role_name(name), "{name}");
    }
}

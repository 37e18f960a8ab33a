//! Commands that build lists from the DNS: `table resolve` and `table suggest-hosts`.

use crate::both_paths::routes::dns::{setup_with_dns_learning, zone_records};
use crate::harness::{DnsServer, Setup};

#[test]
fn table_resolve_turns_a_list_of_names_into_a_list_of_kind_mx() {
    let server = DnsServer::start(&zone_records());
    let setup = setup_with_dns_learning(server.address).set("dns.rate", "1000");
    let names = setup.path("names.txt");
    let text = "domain\nnull.com\n# a comment\nBURNER.com,more\nx.broken.net\nno such name.com\n\
                a-only.com\nself.com\ngone-for-good.com\nlocal.com\nunderscore.com\nstrange.com\n192.0.2.1\nany.invalid\n";
    std::fs::write(&names, text).unwrap();
    let output = setup.path("mx.csv");
    let [names, output] = [&names, &output].map(|path| path.display().to_string());
    let ran = setup.cli(&["table", "resolve", &names, "-o", &output]).expect(0);
    assert_eq!(
        std::fs::read_to_string(&output).unwrap(),
        "domain,mx\nburner.com,mx2.mailinator.com\n\
         gone-for-good.com,nxdomain\nlocal.com,parked\nnull.com,.\nself.com,self.com\n"
    );
    assert!(ran.stderr.contains("5 names, 1 with an address alone, 3 not known"), "{}", ran.stderr);
    assert!(ran.stderr.contains("3 lines without a domain name"), "{}", ran.stderr);
    let shown = setup.cli(&["table", "resolve", &names]).expect(0).stdout;
    assert_eq!(shown, std::fs::read_to_string(&output).unwrap());
}

#[test]
fn table_resolve_fails_if_the_resolver_does_not_know_the_large_providers() {
    let server = DnsServer::start("x A 192.0.2.1\n");
    let setup = setup_with_dns_learning(server.address);
    let names = setup.path("names.txt");
    std::fs::write(&names, "null.com\n").unwrap();
    let ran = setup.cli(&["table", "resolve", &names.display().to_string()]).expect(1);
    assert!(
        ran.stdout.is_empty() && ran.stderr.contains("expected the mail hosts of"),
        "{}",
        ran.stderr
    );
}

#[test]
fn table_suggest_hosts_proposes_hosts_of_many_listed_and_no_protected_names() {
    let setup = Setup::new();
    let disposable: String = (0..8).map(|number| format!("bad-{number}.com\n")).collect();
    setup.lists().write("disposable.txt", &format!("{disposable}first.test\n"));
    let mut mx = "domain,mx\n".to_owned();
    for number in 0..8 {
        mx += &format!("bad-{number}.com,mx{number}.factory.net\n");
        mx += &format!("www.bad-0.com,www{number}.once.net\n");
        mx += &format!("bad-{number}.com,mx.hosting.net\n");
        mx += &format!("bad-{number}.com,mx.popular.net\n");
        mx += &format!("nobody-lists-me-{number}.com,mx.popular.net\n");
        mx += &format!("bad-{number}.com,bad-{number}.com\n");
    }
    mx += "safe-corp.com,mail.hosting.net\nnobody.com,a.factory.net\nnull.com,.\nbroken\n";
    let path = setup.path("mx.csv");
    std::fs::write(&path, mx).unwrap();
    let path = path.display().to_string();
    let proposed = setup.cli(&["table", "suggest-hosts", &path]).expect(0).stdout;
    let rows: Vec<&str> = proposed.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows, ["suffix,label,class", "factory.net,factory.net,disposable"]);
    assert!(proposed.contains("# 8 listed, 0 protected, 1 in no list: bad-0.com"), "{proposed}");
    let more = setup.cli(&["table", "suggest-hosts", &path, "--min", "10"]).expect(0).stdout;
    assert!(!more.contains("factory.net"), "{more}");
}

#[test]
fn table_suggest_hosts_proposes_the_address_that_listed_names_share() {
    let mut zone = String::new();
    for number in 0..4 {
        zone += &format!(
            "pool-{number} MX 10 mail.pool-{number}.com.\nmail.pool-{number} A 185.7.8.9\n"
        );
        zone += &format!(
            "shop-{number} MX 10 mail.shop-{number}.com.\nmail.shop-{number} A 185.7.8.1\n"
        );
    }
    zone += "safe-corp MX 10 mail.safe-corp.com.\nmail.safe-corp A 185.7.8.1\n";
    let server = DnsServer::start(&zone);
    let setup = Setup::new().set("dns.resolvers", &format!("[\"{}\"]", server.address));
    let setup = setup.set("dns.rate", "1000");
    setup.lists().write(
        "disposable.txt",
        "first.test\nsecond.test\nthird.test\npool-0.com\npool-1.com\npool-2.com\nshop-0.com\n",
    );
    let names = setup.path("names.txt");
    let lines: String =
        (0..4).map(|number| format!("pool-{number}.com\nshop-{number}.com\n")).collect();
    std::fs::write(&names, lines + "safe-corp.com\n").unwrap();
    let output = setup.path("mx.csv");
    let [names, output] = [&names, &output].map(|path| path.display().to_string());
    setup.cli(&["table", "resolve", &names, "--addresses", "-o", &output]).expect(0);
    let resolved = std::fs::read_to_string(&output).unwrap();
    assert!(
        resolved.starts_with("domain,mx,addresses\npool-0.com,mail.pool-0.com,185.7.8.9\n"),
        "{resolved}"
    );
    let proposed = setup.cli(&["table", "suggest-hosts", &output]).expect(0).stdout;
    assert!(proposed.contains("# 3 listed, 0 protected, 1 in no list: pool-0.com"), "{proposed}");
    assert!(proposed.contains("\n185.7.8.9,,riskgate table suggest-hosts,20"), "{proposed}");
    assert!(
        proposed.contains("\n# 185.7.8.1 (do not add it: a protected name uses it)\n"),
        "{proposed}"
    );
    assert!(!proposed.contains("\n185.7.8.1,"), "{proposed}");
    let shown = setup.cli(&["table", "suggest-hosts", &output, "--json"]).expect(0).json();
    let first = &shown["addresses"][0];
    assert_eq!((&first["address"], &first["listed"]), (&"185.7.8.9".into(), &3.into()));
    assert_eq!((&first["unlisted"], &first["protected"]), (&1.into(), &0.into()));
    let second = &shown["addresses"][1];
    assert_eq!((&second["protected"], &second["row"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(second["examples"][0], "safe-corp.com");
    let none = setup.cli(&["table", "suggest-hosts"]).expect(0);
    assert!(none.stderr.contains("expected a store, but found no file"), "{}", none.stderr);
    assert!(!setup.path("riskgate.db").exists(), "the command creates no store");
}

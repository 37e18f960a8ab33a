use super::*;
use crate::table::{Source, Table};
use crate::verdict::VerdictSource;

const NOW: i64 = 1_795_219_200;
const DAY: i64 = 86_400;

fn table() -> Table {
    let folder = tempfile::tempdir().unwrap();
    let list = |file: &str, kind: &str| format!("[[list]]\nfile = \"{file}\"\nkind = \"{kind}\"\n");
    let manifest = list("mx-labels.csv", "mx_label") + &list("free.txt", "free");
    for (file, text) in [
        ("manifest.toml", manifest.as_str()),
        ("mx-labels.csv", "suffix,label,class\nbad.host,Bad,disposable\n"),
        ("free.txt", "listed.com\n"),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    Table::load(&Source::Path(folder.path().to_owned())).unwrap()
}

fn on() -> Memory {
    let memory = Memory::default();
    memory.switch(true);
    memory
}

fn mx(text: &str, holds_for: i64) -> Said {
    Said::Mx { text: text.to_owned(), holds_for }
}

fn failed() -> Said {
    Said::NotKnown("SERVFAIL".to_owned())
}

/// What a look-up says: the score, and whether it came by the DNS.
fn look_up(memory: &Memory, table: &Table, name: &str, now: i64) -> (u8, bool) {
    let domain = Domain::parse(name).unwrap();
    let found = memory.complete(table.lookup(&domain, now), &domain, now);
    (found.verdict.score.value(), found.source() == VerdictSource::Dns)
}

/// The next name that is wanted, if there is one.
fn next(memory: &Memory) -> Option<Arc<str>> {
    memory.wanted().queue.pop_front()
}

#[test]
fn the_first_look_up_wants_a_name_and_the_second_knows_it() {
    let (memory, table) = (on(), table());
    for _ in 0..3 {
        assert_eq!(look_up(&memory, &table, "new.com", NOW), (10, false));
    }
    let name = next(&memory).unwrap();
    assert_eq!((&*name, next(&memory)), ("new.com", None), "once is enough");
    look_up(&memory, &table, "new.com", NOW);
    assert_eq!(next(&memory), None, "it is being asked");
    let learned = memory.answer(&name, mx("mx.bad.host", 600), NOW).unwrap();
    assert_eq!((learned.name.as_str(), learned.until), ("new.com", NOW + 600));
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 1), (85, true));
    assert_eq!(next(&memory), None);
}

#[test]
fn a_name_in_a_list_is_never_wanted_and_nothing_is_while_it_is_off() {
    let (memory, table) = (on(), table());
    look_up(&memory, &table, "listed.com", NOW);
    look_up(&memory, &table, "sub.listed.com", NOW);
    assert_eq!(next(&memory), None);
    look_up(&memory, &table, "new.com", NOW);
    memory.answer(&next(&memory).unwrap(), mx(".", 600), NOW);
    memory.switch(false);
    assert_eq!(look_up(&memory, &table, "new.com", NOW), (10, false));
    assert_eq!((next(&memory), memory.known()), (None, 0));
}

#[test]
fn an_answer_past_its_end_is_asked_anew_and_counts_for_a_day_meanwhile() {
    let (memory, table) = (on(), table());
    let name: Arc<str> = "new.com".into();
    memory.answer(&name, mx(".", 600), NOW);
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 599), (95, true));
    assert_eq!(next(&memory), None);
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 600), (95, true));
    assert_eq!(next(&memory).as_deref(), Some("new.com"));
    memory.answer(&name, failed(), NOW + 601);
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 602), (95, true));
    assert_eq!(next(&memory), None, "it is left alone for a while");
    look_up(&memory, &table, "new.com", NOW + 661);
    assert_eq!(next(&memory).as_deref(), Some("new.com"));
    memory.answer(&name, failed(), NOW + 661);
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 600 + DAY), (10, false));
    memory.answer(&name, mx("mx.bad.host", 600), NOW + 600 + DAY);
    assert_eq!(look_up(&memory, &table, "new.com", NOW + 601 + DAY), (85, true));
}

#[test]
fn a_name_of_which_nothing_comes_is_tried_again_ever_more_seldom() {
    let (memory, table) = (on(), table());
    let mut now = NOW;
    for pause in [60, 300, 1_800, 7_200, 7_200] {
        look_up(&memory, &table, "new.com", now);
        let name = next(&memory).expect("it is tried");
        assert_eq!(memory.answer(&name, failed(), now), None);
        look_up(&memory, &table, "new.com", now + pause - 1);
        assert_eq!(next(&memory), None, "{pause}");
        now += pause;
    }
    assert_eq!(look_up(&memory, &table, "new.com", now), (10, false));
}

#[test]
fn a_million_names_leave_queue_and_memory_bounded() {
    let (memory, table) = (on(), table());
    for number in 0..1_000_000 {
        look_up(&memory, &table, &format!("name-{number}.com"), NOW);
    }
    assert_eq!(memory.queued(), MOST_WANTED);
    assert_eq!(memory.wanted().names.len(), MOST_WANTED);
    assert_eq!(memory.dropped(), 1_000_000 - MOST_WANTED as u64);
    let host = "h".repeat(60);
    for number in 0..1_000_000 {
        memory.answer(&format!("name-{number}.com").into(), mx(&host, 600), NOW);
        if number % 1_000 == 0 {
            // One that is asked for stays, whoever comes.
            look_up(&memory, &table, "name-0.com", NOW);
        }
    }
    assert!(memory.bytes.load(Ordering::Relaxed) <= MOST_BYTES);
    assert!(memory.known() < MOST_BYTES / OVERHEAD && memory.known() > 50_000);
    assert_eq!(memory.order().len(), memory.known());
    let counted: usize = memory.known.iter().map(|it| it.value().cost(it.key())).sum();
    assert_eq!(counted, memory.bytes.load(Ordering::Relaxed));
    assert!(memory.known.contains_key("name-0.com"));
    assert!(memory.known.contains_key("name-999999.com"));
    assert!(!memory.known.contains_key("name-1.com"));
}

#[test]
fn what_was_being_asked_can_be_wanted_again() {
    let (memory, table) = (on(), table());
    look_up(&memory, &table, "one.com", NOW);
    look_up(&memory, &table, "two.com", NOW);
    assert_eq!(next(&memory).as_deref(), Some("one.com"));
    memory.forget_asked();
    look_up(&memory, &table, "one.com", NOW);
    look_up(&memory, &table, "two.com", NOW);
    assert_eq!(memory.queued(), 2);
}

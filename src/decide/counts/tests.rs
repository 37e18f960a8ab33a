use std::collections::HashMap;

use super::*;

fn pseudonym(kind: u8, number: u32) -> Pseudonym {
    // Spreads numbers as a hash does.
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let mut bytes = spread.to_le_bytes();
    bytes[7] = kind;
    Pseudonym(bytes)
}

fn sign_up(at: i64, inbox: u32, address: u32, domain: u32, client: u32) -> SignUp {
    SignUp {
        at,
        inbox: pseudonym(1, inbox),
        address: pseudonym(2, address),
        domain: Some(pseudonym(3, domain)),
        client: Some(pseudonym(4, client)),
    }
}

#[test]
fn the_same_address_never_counts_against_itself() {
    let counts = SignUpCounts::new();
    let first = sign_up(1_000, 1, 1, 1, 1);
    for at in [1_000, 1_010, 5_000] {
        counts.add(&SignUp { at, ..first });
    }
    let found = counts.count_others(&SignUp { at: 5_001, ..first });
    assert_eq!(found.inbox_accounts_30d, Some(0));
    assert_eq!(found.domain_accounts_1h, Some(0));
    let other = sign_up(5_002, 1, 2, 1, 1);
    assert_eq!(counts.count_others(&other).inbox_accounts_30d, Some(1));
    assert_eq!(counts.count_others(&sign_up(5_002, 2, 3, 1, 1)).domain_accounts_1h, Some(1));
}

#[test]
fn a_sign_up_that_is_repeated_within_a_minute_is_added_once() {
    let counts = SignUpCounts::new();
    let first = sign_up(1_000, 1, 1, 1, 1);
    let add = |at, of: SignUp| counts.add_form(&[SignUp { at, ..of }]).len();
    assert_eq!([1_000, 1_001, 1_059].map(|at| add(at, first)), [1, 0, 0]);
    // A sign-up of the same address from another network is another sign-up.
    assert_eq!(add(1_059, SignUp { client: Some(pseudonym(4, 2)), ..first }), 1);
    assert_eq!([1_060, 1_119].map(|at| add(at, first)), [1, 0]);
    // The address counts for an hour from the time at which it was added last.
    let other = sign_up(0, 2, 2, 1, 1);
    let count = |at| counts.count_others(&SignUp { at, ..other }).domain_accounts_1h;
    assert_eq!([4_659, 4_660].map(count), [Some(1), Some(0)]);
}

#[test]
fn counts_end_with_their_time() {
    let counts = SignUpCounts::new();
    counts.add(&sign_up(1_000, 1, 1, 1, 1));
    let at = |seconds| counts.count_others(&sign_up(1_000 + seconds, 2, 2, 1, 1));
    assert_eq!(at(HOUR_SECONDS - 1).domain_accounts_1h, Some(1));
    assert_eq!(at(HOUR_SECONDS).domain_accounts_1h, Some(0));
    assert_eq!(at(DAY_SECONDS - 1).domain_accounts_1d, Some(1));
    assert_eq!(at(DAY_SECONDS).domain_accounts_1d, Some(0));
    let at = |seconds| counts.count_others(&sign_up(1_000 + seconds, 1, 2, 1, 1));
    assert_eq!(at(SIGN_UP_LIFETIME_SECONDS - 1).inbox_accounts_30d, Some(1));
    assert_eq!(at(SIGN_UP_LIFETIME_SECONDS).inbox_accounts_30d, Some(0));
}

#[test]
fn sign_ups_of_a_clock_that_was_ahead_do_not_count() {
    let counts = SignUpCounts::new();
    counts.add(&sign_up(1_000 + 2 * DAY_SECONDS, 1, 1, 1, 1));
    counts.add(&sign_up(1_000, 2, 2, 1, 1));
    counts.add(&sign_up(1_004, 3, 3, 1, 1));
    let found = counts.count_others(&sign_up(1_001, 9, 9, 1, 1));
    assert_eq!((found.domain_accounts_1h, found.client_accounts_1h), (Some(2), Some(2)));
}

#[test]
fn a_count_stops_at_its_maximum() {
    let counts = SignUpCounts::new();
    for inbox in 0..MAX_COUNT + 50 {
        counts.add(&sign_up(1_000, inbox, inbox, 1, inbox));
    }
    let found = counts.count_others(&sign_up(1_001, 9_999, 9_999, 1, 9_999));
    assert_eq!(found.domain_accounts_1h, Some(MAX_COUNT));
}

#[test]
fn a_forgotten_inbox_counts_nowhere_and_others_stay() {
    let counts = SignUpCounts::new();
    for (inbox, address) in [(1, 1), (1, 2), (2, 3)] {
        counts.add(&sign_up(1_000, inbox, address, 1, 1));
    }
    let found = || {
        let of_inbox = counts.count_others(&sign_up(1_001, 1, 9, 8, 8)).inbox_accounts_30d;
        let other = counts.count_others(&sign_up(1_001, 9, 9, 1, 1));
        (of_inbox, other.domain_accounts_1h, other.client_accounts_1h)
    };
    assert_eq!(found(), (Some(2), Some(2), Some(2)));
    counts.forget_inboxes(&[pseudonym(1, 1)].into());
    assert_eq!(found(), (Some(0), Some(1), Some(1)));
    counts.add(&sign_up(1_000, 1, 2, 1, 1));
    assert_eq!(found(), (Some(1), Some(2), Some(2)));
}

/// Draws sign-ups with a small generator, and compares the counts with those of a list. Some
/// inboxes are forgotten.
fn compare_with_list(capacity: usize, draws: u32, check: impl Fn(u32, u32)) {
    let counts = SignUpCounts::with_capacities(capacity, capacity);
    let mut list: VecDeque<SignUp> = VecDeque::new();
    let mut state: u64 = 42;
    let mut draw = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) % bound) as u32
    };
    let mut now = 10_000;
    for _ in 0..draws {
        now += i64::from(draw(400));
        let inbox = draw(40);
        let late = i64::from(draw(5));
        let drawn = sign_up(now - late, inbox, inbox * 100 + draw(4), inbox % 7, draw(9));
        let found = counts.count_others(&drawn);
        let distinct = |member: fn(&SignUp) -> Pseudonym,
                        owner: fn(&SignUp) -> Option<Pseudonym>,
                        seconds: i64| {
            let mut seen: HashMap<Pseudonym, i64> = HashMap::new();
            for other in list.iter().filter(|other| owner(other) == owner(&drawn)) {
                let last = seen.entry(member(other)).or_insert(other.at);
                *last = other.at.max(*last);
            }
            seen.remove(&member(&drawn));
            seen.values().filter(|at| **at > drawn.at - seconds).count() as u32
        };
        let pairs = [
            (
                found.inbox_accounts_30d,
                distinct(|it| it.address, |it| Some(it.inbox), SIGN_UP_LIFETIME_SECONDS),
            ),
            (found.domain_accounts_1h, distinct(|it| it.inbox, |it| it.domain, HOUR_SECONDS)),
            (found.domain_accounts_1d, distinct(|it| it.inbox, |it| it.domain, DAY_SECONDS)),
            (found.client_accounts_1h, distinct(|it| it.inbox, |it| it.client, HOUR_SECONDS)),
        ];
        for (counted, expected) in pairs {
            check(counted.unwrap(), expected);
        }
        counts.add(&drawn);
        list.push_back(drawn);
        if draw(20) == 0 {
            let forgotten = pseudonym(1, draw(40));
            counts.forget_inboxes(&[forgotten].into());
            list.retain(|it| it.inbox != forgotten);
        }
    }
}

#[test]
fn counts_agree_with_a_list_of_all_sign_ups() {
    compare_with_list(10_000, 3_000, |counted, expected| assert_eq!(counted, expected));
}

#[test]
fn full_sets_count_too_few_and_never_too_many() {
    compare_with_list(64, 3_000, |counted, expected| assert!(counted <= expected));
}

#[test]
fn what_was_seen_lately_is_never_forgotten() {
    // A shard keeps four pairs, and at most two others are added between two sights of this
    // one.
    let counts = SignUpCounts::with_capacities(16 * 4, 16 * 4);
    for number in 0..3_000 {
        let at = 1_000 + i64::from(number);
        let steady = sign_up(at, 7_777, 7_777, 7_777, 7_777);
        if number % 3 > 0 {
            counts.add(&sign_up(at, number, number, number, number));
            continue;
        }
        if number > 0 {
            let other = SignUp { address: pseudonym(2, 9_999), ..steady };
            assert_eq!(counts.count_others(&other).inbox_accounts_30d, Some(1), "{number}");
        }
        counts.add(&steady);
    }
}

#[test]
fn a_busy_domain_takes_no_place_from_others() {
    let counts = SignUpCounts::new();
    for domain in 0..64 {
        counts.add(&sign_up(1_000, domain, domain, domain, domain));
    }
    for inbox in 100..20_100 {
        counts.add(&sign_up(1_000, inbox, inbox, 99, inbox));
    }
    for domain in 0..64 {
        let found = counts.count_others(&sign_up(1_001, 50_000, 50_000, domain, 50_000));
        assert_eq!(found.domain_accounts_1h, Some(1), "{domain}");
    }
    let found = counts.count_others(&sign_up(1_001, 50_000, 50_000, 99, 50_000));
    assert_eq!(found.domain_accounts_1h, Some(MAX_COUNT));
}

#[test]
fn the_latest_members_of_a_full_set_are_kept() {
    let counts = SignUpCounts::new();
    for second in 0..2_000 {
        let second = u32::try_from(second).unwrap();
        counts.add(&sign_up(10_000 + i64::from(second), second, second, 1, second));
    }
    // One that arrives late takes no place from a later one.
    counts.add(&sign_up(5_000, 9_000, 9_000, 1, 9_000));
    let at = 10_000 + 1_999 + HOUR_SECONDS - 500;
    let found = counts.count_others(&sign_up(at, 8_000, 8_000, 1, 8_000));
    assert_eq!(found.domain_accounts_1h, Some(500));
}

#[test]
fn a_form_raises_each_count_by_one_at_most() {
    let counts = SignUpCounts::new();
    // An attacker writes four addresses of a victim's inbox into a form, and one of another.
    let form = [
        sign_up(1_000, 1, 1, 1, 1),
        sign_up(1_000, 1, 2, 1, 1),
        sign_up(1_000, 1, 3, 1, 1),
        sign_up(1_000, 2, 4, 1, 1),
    ];
    assert_eq!(counts.add_form(&form).len(), 2);
    let asked = counts.count_others(&sign_up(1_001, 1, 99, 1, 1));
    assert_eq!(asked.inbox_accounts_30d, Some(1));
    let asked = counts.count_others(&sign_up(1_001, 99, 99, 1, 1));
    assert_eq!((asked.domain_accounts_1h, asked.client_accounts_1h), (Some(1), Some(1)));
    // A decoy that counts already hides no other inbox.
    counts.add_form(&[sign_up(1_002, 1, 1, 1, 1), sign_up(1_002, 3, 5, 1, 1)]);
    let asked = counts.count_others(&sign_up(1_003, 99, 99, 1, 1));
    assert_eq!((asked.domain_accounts_1h, asked.client_accounts_1h), (Some(2), Some(2)));
}

#[test]
fn a_form_of_addresses_that_were_seen_before_raises_and_renews_one_at_most() {
    let one_form = |at| -> Vec<SignUp> { (0..16).map(|n| sign_up(at, n, n, 1, 1)).collect() };
    let counted_at = |counts: &SignUpCounts, at| {
        let found = counts.count_others(&sign_up(at, 99, 99, 1, 1));
        [found.domain_accounts_1h, found.domain_accounts_1d, found.client_accounts_1h]
    };
    for age in [HOUR_SECONDS - 1, HOUR_SECONDS, 2 * HOUR_SECONDS, 2 * DAY_SECONDS] {
        let counts = SignUpCounts::new();
        for single in one_form(1_000) {
            assert_eq!(counts.add_form(&[single]).len(), 1);
        }
        let at = 1_000 + age;
        let before = counted_at(&counts, at);
        counts.add_form(&one_form(at));
        for (before, after) in before.into_iter().zip(counted_at(&counts, at)) {
            assert!(after <= before.map(|count| (count + 1).min(16)), "{age}");
        }
        // The form makes one address count for another hour and for another day.
        let later = at + HOUR_SECONDS - 1;
        let of_hour = counted_at(&counts, later);
        assert_eq!([of_hour[0], of_hour[2]], [Some(1); 2], "{age}");
    }
    // The addresses of one inbox, after its 30 days.
    let counts = SignUpCounts::new();
    let of_inbox = |at| -> Vec<SignUp> { (0..16).map(|n| sign_up(at, 1, n, 1, 1)).collect() };
    of_inbox(1_000).iter().for_each(|single| drop(counts.add_form(&[*single])));
    let at = 1_000 + SIGN_UP_LIFETIME_SECONDS;
    counts.add_form(&of_inbox(at));
    let asked = counts.count_others(&sign_up(at, 1, 99, 1, 1));
    assert_eq!(asked.inbox_accounts_30d, Some(1));
}

#[test]
fn a_form_that_is_sent_twice_within_a_minute_is_added_once() {
    let counts = SignUpCounts::new();
    let form = |at| {
        [
            sign_up(at, 1, 1, 1, 1),
            sign_up(at, 2, 2, 1, 1),
            sign_up(at, 3, 3, 2, 1),
            sign_up(at, 3, 4, 2, 1),
        ]
    };
    let counted_at = |at| {
        let found = counts.count_others(&sign_up(at, 99, 99, 1, 1));
        let of_inbox = counts.count_others(&sign_up(at, 3, 99, 1, 1)).inbox_accounts_30d;
        [found.domain_accounts_1h, found.client_accounts_1h, of_inbox]
    };
    assert_eq!(counts.add_form(&form(1_000)).len(), 3);
    for at in [1_001, 1_059] {
        assert_eq!(counts.add_form(&form(at)), []);
        assert_eq!(counted_at(at), [Some(1); 3]);
    }
    // A form with other addresses is another form, whatever decoys are in it.
    counts.add_form(&form(1_059)[..2]);
    assert_eq!(counted_at(1_059), [Some(2), Some(2), Some(1)]);
    // The form a minute later counts as another form.
    assert_ne!(counts.add_form(&form(1_060)), []);
    // Of a deleted inbox, nothing is known.
    counts.forget_inboxes(&(1..4).map(|inbox| pseudonym(1, inbox)).collect());
    assert_eq!(counts.add_form(&form(1_061)).len(), 3);
}

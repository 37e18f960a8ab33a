//! Honest sign-ups, drawn at random. All shares and sizes are assumptions.

use std::net::{IpAddr, Ipv4Addr};

/// 2026-11-21.
pub const START: i64 = 1_795_219_200;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Free providers, each with its share of honest sign-ups in percent.
const PROVIDERS: [(&str, usize); 8] = [
    ("gmail.com", 42),
    ("outlook.com", 7),
    ("hotmail.com", 7),
    ("yahoo.com", 6),
    ("icloud.com", 5),
    ("web.de", 2),
    ("mail.ru", 2),
    ("proton.me", 2),
];

/// Generates pseudo-random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub fn client(&mut self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0100_0000 + self.below(0xd000_0000) as u32))
    }

    /// A second of the day: most sign-ups are in the afternoon, few at night.
    fn second_of_day(&mut self) -> i64 {
        let noon = (0..3).map(|_| self.below(DAY as usize) as i64).sum::<i64>() / 3;
        if self.one_in(4) { self.below(DAY as usize) as i64 } else { (noon + DAY / 8) % DAY }
    }

    /// Of 100 people, 73 use a free provider, the others the domain of one of 40,000 companies.
    fn person(&mut self) -> Person {
        let number = self.below(usize::MAX >> 20);
        let drawn = self.below(100);
        let mut sum = 0;
        let provider = PROVIDERS.iter().find(|(_, share)| {
            sum += share;
            drawn < sum
        });
        let domain = match provider {
            Some((name, _)) => (*name).to_owned(),
            None => format!("firm-x.example-{}.com", self.below(40_000)),
        };
        Person { number, domain }
    }
}

struct Person {
    number: usize,
    domain: String,
}

impl Person {
    fn email(&self) -> String {
        format!("person{}@{}", self.number, self.domain)
    }
}

/// A form that is posted.
pub struct Form {
    pub at: i64,
    pub email: String,
    pub client: IpAddr,
    /// Whether the server makes an account, unless the form is blocked. If it shows the form again
    /// with an error, or fails, the sign-up does not count.
    pub succeeds: bool,
}

impl Form {
    pub fn new(at: i64, email: String, client: IpAddr) -> Form {
        Form { at, email, client, succeeds: true }
    }

    fn that_fails(at: i64, email: String, client: IpAddr) -> Form {
        Form { succeeds: false, ..Form::new(at, email, client) }
    }
}

/// A form of honest people, and why they send it.
pub type HonestForm = (&'static str, Form);

/// The honest sign-ups of a day. One in 30 people sends the form twice. One in 25 gets it again
/// with an error, and corrects it. One in 50 signs up with a mistyped address, and then with the right
/// one. One in 40 comes through one of 200 networks of mobile operators. One in 1,000 opens a second
/// account with a tag.
pub fn draw_day(random: &mut Random, day: i64, count: usize, out: &mut Vec<HonestForm>) {
    for _ in 0..count {
        let at = START + day * DAY + random.second_of_day();
        let person = random.person();
        let client = match random.one_in(40) {
            true => {
                IpAddr::V4(Ipv4Addr::new(100, 64, random.below(200) as u8, random.below(250) as u8))
            }
            false => random.client(),
        };
        let email = person.email();
        if random.one_in(30) {
            out.push(("the same form twice", Form::new(at + 1, email.clone(), client)));
        }
        if random.one_in(25) {
            let failed = Form::that_fails(at - 30, email.clone(), client);
            out.push(("a form shown again with an error", failed));
        }
        if random.one_in(50) {
            let mistyped = format!("persn{}@{}", person.number, person.domain);
            out.push(("a mistyped address", Form::new(at - 40, mistyped, client)));
        }
        if random.one_in(1_000) {
            let second = format!("person{}+shop@{}", person.number, person.domain);
            out.push(("a second account", Form::new(at + HOUR, second, client)));
        }
        out.push(("a person", Form::new(at, email, client)));
    }
}

/// Crowds of honest people, once in a week.
pub fn draw_crowds(random: &mut Random, out: &mut Vec<HonestForm>) {
    let office = random.client();
    for number in 0..500 {
        let at = START + DAY + 9 * HOUR + random.below(HOUR as usize) as i64;
        let email = format!("colleague{number}@new-office-4.com");
        out.push(("500 colleagues in an hour", Form::new(at, email, office)));
    }
    let campus: Vec<IpAddr> = (0..10).map(|_| random.client()).collect();
    for number in 0..3_000 {
        let at = START + random.below(6) as i64 * DAY + random.second_of_day();
        let client = campus[random.below(campus.len())];
        let email = format!("student{number}@students.tu-neustadt-4.org");
        out.push(("a university's first week", Form::new(at, email, client)));
    }
    let school = random.client();
    for number in 0..120 {
        let at = START + 2 * DAY + 10 * HOUR + random.below(HOUR as usize) as i64;
        let email = format!("pupil{number}@gmail.com");
        out.push(("a school behind one address", Form::new(at, email, school)));
    }
    for _ in 0..10_000 {
        let at = START + 4 * DAY + 18 * HOUR + random.below(2 * HOUR as usize) as i64;
        let form = Form::new(at, random.person().email(), random.client());
        out.push(("10,000 people follow a link in two hours", form));
    }
    let one_address = random.client();
    for _ in 0..2_000 {
        let at = START + 5 * DAY + random.second_of_day();
        let form = Form::new(at, random.person().email(), one_address);
        out.push(("2,000 people behind one IPv4 in a day", form));
    }
    draw_families(random, out);
    draw_retries(random, out);
}

/// 2,000 families, in which two to four people sign up within two hours.
fn draw_families(random: &mut Random, out: &mut Vec<HonestForm>) {
    for _ in 0..2_000 {
        let home = random.client();
        let evening = START + random.below(7) as i64 * DAY + 18 * HOUR;
        for _ in 0..2 + random.below(3) {
            let at = evening + random.below(2 * HOUR as usize) as i64;
            out.push(("families", Form::new(at, random.person().email(), home)));
        }
    }
}

/// The server fails for ten minutes: 300 people send their form ten times each, and only the last
/// one makes an account.
fn draw_retries(random: &mut Random, out: &mut Vec<HonestForm>) {
    for _ in 0..300 {
        let (email, client) = (random.person().email(), random.client());
        let at = START + 6 * DAY + 12 * HOUR;
        for number in 0..9 {
            let failed = Form::that_fails(at + number * 60, email.clone(), client);
            out.push(("retries while the server fails", failed));
        }
        out.push(("retries while the server fails", Form::new(at + 660, email, client)));
    }
}

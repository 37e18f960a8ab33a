//! The names of functions and machines in local parts: which addresses belong to no person.
//!
//! No I/O. [`crate::model::email::EmailAddress::is_role`] is the only caller.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The local parts that belong to functions and machines rather than to people (RFC 2142, and what
/// sites and companies use besides, in the languages with most speakers and their neighbours),
/// without separators, sorted by bytes. Nobody's first or last name is here, unless companies use
/// it far more often than people.
#[rustfmt::skip]
const ROLE_NAMES: [&str; 459] = [
    "abonnement", "abuse", "account", "accounting", "accounts", "accountspayable", "accueil",
    "achats", "acquisti", "admin", "administracao", "administracion", "administrador",
    "administratie", "administration", "administrator", "admins", "admissions", "ads",
    "advertising", "ajuda", "aldaam", "alert", "alerts", "all", "amministrazione", "anfrage",
    "anfragen", "announcements", "apps", "assistance", "assistenza", "atencion",
    "atencionalcliente", "atendimento", "auskunft", "autoreply", "autoresponder", "ayuda",
    "bantuan", "bestellingen", "bestellung", "bestellungen", "bewerbung", "bewerbungen", "bikri",
    "bilgi", "billing", "biuro", "board", "boekhouding", "booking", "bookings", "bounce", "bounces",
    "boutique", "buchhaltung", "buergerbuero", "buero", "buh", "buhgalter", "buhgalteria",
    "buhgalteriya", "caiwu", "calidad", "careers", "claims", "clientele", "clientes", "clients",
    "cobranca", "cobranza", "cobranzas", "comercial", "commande", "commandes", "commercial",
    "commerciale", "communication", "community", "complaints", "compliance", "compras", "compta",
    "comptabilite", "comunicacao", "contabilidad", "contabilidade", "contabilita", "contact",
    "contacto", "contactus", "contato", "contatti", "contatto", "cskh", "customercare", "customers",
    "customerservice", "customersupport", "daemon", "datenschutz", "destek", "devis", "devnull",
    "direccion", "direction", "diretoria", "direzione", "dispatch", "dns", "donations",
    "donotreply", "dpo", "editor", "eigyo", "einkauf", "empfang", "empleo", "emploi", "enquiries",
    "enquiry", "event", "events", "everyone", "facturacion", "facturas", "facturation", "facture",
    "faleconosco", "fatturazione", "fatture", "faturamento", "feedback", "finance", "financeiro",
    "formation", "ftp", "gdpr", "geral", "gerencia", "geschaeftsfuehrung", "geschaeftsleitung",
    "gongguan", "guanliyuan", "hello", "help", "helpdesk", "helpline", "hilfe", "hostmaster",
    "hotline", "hotro", "hr", "iletisim", "imprensa", "info", "informacao", "informacion",
    "informaciones", "informacoes", "information", "inkoop", "inquiries", "inquiry",
    "insankaynaklari", "investorrelations", "investors", "invoice", "invoices", "invoicing", "it",
    "itsupport", "jinji", "jobs", "kanzlei", "karriere", "kefu", "keineantwort", "keiri", "ketoan",
    "khidma", "kinhdoanh", "klantenservice", "kontak", "kontakt", "ksiegowosc", "kundenbetreuung",
    "kundendienst", "kundenservice", "lavoraconnoi", "layanan", "legal", "lianxi", "lianxiwomen",
    "lienhe", "list", "logistics", "loja", "mabiat", "madoguchi", "mailadmin", "mailer",
    "mailerdaemon", "mairie", "marketing", "media", "membership", "mercadeo", "mitteilungen",
    "moderator", "moderators", "muhasebe", "musteri", "musterihizmetleri", "naoresponda",
    "naoresponder", "negozio", "nepasrepondre", "news", "newsletter", "nichtantworten", "nobody",
    "noc", "nonrispondere", "noreplies", "noreply", "noresponder", "noresponse", "notice",
    "notification", "notifications", "notify", "null", "obsluga", "obslugaklienta", "office",
    "oficina", "operations", "ops", "orcamento", "orcamentos", "order", "orders", "ordini", "otdel",
    "otdelkadrov", "otoiawase", "ouvidoria", "pagos", "partners", "partnership", "partnerships",
    "payment", "payments", "payroll", "pedidos", "pemasaran", "penjualan", "personalabteilung",
    "pochta", "podderjka", "podderzhka", "pomoc", "pomosh", "post", "postmaster", "poststelle",
    "postventa", "praxis", "prenotazioni", "prensa", "press", "presse", "priemnaya", "privacy",
    "procurement", "prodaja", "prodazhi", "proveedores", "publicidad", "publicrelations",
    "purchasing", "quality", "rathaus", "recepcion", "receptie", "reception", "rechnung",
    "rechnungen", "recruiting", "recruitment", "recrutamento", "recrutement", "recursoshumanos",
    "redaktion", "redazione", "refunds", "registrar", "registration", "reklama", "reklamacje",
    "rekrutacja", "reply", "reservas", "reservation", "reservations", "ressourceshumaines",
    "returns", "rezeption", "rh", "risorseumane", "root", "rrhh", "sahayata", "sahayta", "saiyo",
    "sales", "sampark", "satis", "secretaria", "secretariaat", "secretariat", "secretary",
    "security", "segreteria", "sekretar", "sekretariat", "service", "serviceclient",
    "serviceclients", "servicedesk", "services", "servicioalcliente", "servizioclienti", "shipping",
    "shop", "siparis", "sistemas", "sklep", "snabzhenie", "soporte", "soumu", "spam", "sprzedaz",
    "staff", "stampa", "subscribe", "suporte", "support", "supporto", "sysadmin", "tawasol", "team",
    "technik", "techsupport", "termine", "tesoreria", "tienda", "toiawase", "training", "tuyendung",
    "ufficio", "ufficiostampa", "uketsuke", "unsubscribe", "usenet", "uucp", "vacatures", "vendas",
    "vendite", "ventas", "vente", "ventes", "verkauf", "verkoop", "versand", "vertrieb",
    "verwaltung", "volunteer", "volunteers", "vorstand", "warehouse", "webadmin", "webmaster",
    "werbung", "wholesale", "www", "xiaoshou", "zakaz", "zakazy", "zakupki", "zamowienia",
    "zentrale", "zhaopin", "zhichi", "админ", "бухгалтерия", "заказ", "заказы", "инфо", "кадры",
    "контакт", "контакты", "отдел", "отделкадров", "поддержка", "помощь", "приемная", "приёмная",
    "продажи", "реклама", "секретарь", "اتصل", "الدعم", "المبيعات", "المحاسبة", "خدمةالعملاء",
    "دعم", "مبيعات", "معلومات", "जानकारी", "बिक्री", "संपर्क", "सहायता", "তথ্য", "বিক্রয়",
    "যোগাযোগ", "সহায়তা", "お問い合わせ", "サポート", "人事", "信息", "受付", "商务", "問い合わせ", "営業", "客服", "市场", "広報",
    "招聘", "採用", "支持", "窓口", "管理员", "管理員", "経理", "総務", "联系", "联系我们", "聯繫", "財務", "财务", "銷售", "销售",
    "고객센터", "문의", "영업", "채용",
];

/// The role names that may begin a longer name, such as `info.berlin`, sorted by bytes. Names that
/// are last names as well are not here: `sales.maria` and `jobs.anna` are people.
#[rustfmt::skip]
const LEADING_ROLE_NAMES: [&str; 63] = [
    "admin", "administracao", "administracion", "administrador", "administrator", "assistenza",
    "atencion", "atendimento", "bewerbung", "billing", "biuro", "buchhaltung", "buero",
    "comptabilite", "contabilidad", "contabilidade", "contabilita", "contact", "contacto",
    "contato", "contatti", "donotreply", "facturacion", "faturamento", "helpdesk", "hostmaster",
    "iletisim", "info", "informacion", "informacoes", "information", "kefu", "kontakt",
    "kundenservice", "marketing", "newsletter", "noreply", "office", "oficina", "postmaster",
    "secretaria", "secretariat", "segreteria", "sekretariat", "serviceclient", "soporte",
    "suporte", "support", "supporto", "vendas", "vendite", "ventas", "ventes", "verkauf",
    "vertrieb", "webmaster", "инфо", "контакт", "поддержка", "продажи", "お問い合わせ", "客服", "销售",
];

/// The words that stand beside a role name, such as `team` in `sales-team`, or are a part of one,
/// such as `do`, `not` in `do-not-reply`; sorted by bytes. No first name is here.
#[rustfmt::skip]
const WORDS_BESIDE_ROLE_NAMES: [&str; 126] = [
    "abteilung", "ae", "africa", "america", "antworten", "apac", "ar", "asia", "at", "au", "auto",
    "be", "bitte", "br", "ca", "care", "center", "central", "centre", "ch", "cl", "client",
    "cliente", "cn", "co", "customer", "de", "department", "dept", "desk", "dev", "dk", "do",
    "east", "email", "emea", "es", "eu", "europe", "fi", "fr", "general", "global", "group", "head",
    "host", "hq", "humaines", "human", "humanos", "in", "international", "intl", "investor", "jp",
    "kr", "latam", "leitung", "line", "local", "mail", "main", "master", "member", "members", "mx",
    "nao", "ne", "net", "new", "nicht", "nl", "no", "non", "nord", "north", "not", "nz", "online",
    "ost", "partner", "pas", "payable", "pe", "pl", "please", "pt", "public", "receivable",
    "recursos", "relations", "repondre", "resources", "responda", "responder", "response",
    "ressources", "risorse", "rispondere", "ru", "se", "site", "south", "student", "students", "sud", "sued",
    "supplier", "suppliers", "sys", "system", "systems", "teams", "tr", "uk", "umane", "us", "usa", "user",
    "users", "vendor", "vendors", "web", "west", "world", "za",
];

/// What a word says about the local part that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordKind {
    /// Alone, the word is a role.
    Role,
    /// The word is a role alone, and at the start of a longer name.
    LeadingRole,
    /// The word stands beside a role.
    BesideRole,
}

/// All words of the lists. A hash is faster than a search of the lists.
static KINDS: LazyLock<HashMap<&str, WordKind>> = LazyLock::new(|| {
    let roles = ROLE_NAMES.iter().map(|word| (*word, WordKind::Role));
    let beside = WORDS_BESIDE_ROLE_NAMES.iter().map(|word| (*word, WordKind::BesideRole));
    let leading = LEADING_ROLE_NAMES.iter().map(|word| (*word, WordKind::LeadingRole));
    roles.chain(beside).chain(leading).collect()
});

/// Whether a local part in lower case, without what follows `+`, belongs to a function or a
/// machine. Several words count only if their separators stand between whole words: `ad.min` and
/// `mark.eting` are people.
pub(super) fn is_role_name(local_part: &str) -> bool {
    let kind = |word: &str| KINDS.get(word).copied();
    let is_role = |word: &str| matches!(kind(word), Some(WordKind::Role | WordKind::LeadingRole));
    let words = || local_part.split(['-', '_', '.']).filter(|word| !word.is_empty());
    let mut further_words = words();
    let first = further_words.next().unwrap_or_default();
    // Most people's names end here.
    let Some(kind_of_first) = kind(first) else { return false };
    if further_words.next().is_none() {
        return is_role(local_part);
    }
    kind_of_first == WordKind::LeadingRole
        || words().all(|word| kind(word).is_some())
            && (words().any(is_role) || is_role(&words().collect::<String>()))
}

#[cfg(test)]
mod tests;

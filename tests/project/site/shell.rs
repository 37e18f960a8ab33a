//! Splits lines of a shell into commands, as far as the documents need it.

/// Returns the words of each command. Quotes join words and vanish; redirections, pipes and
/// parentheses end a command.
pub fn split_commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let (mut quote, mut is_comment) = (None, false);
    for char in text.chars() {
        if is_comment && char != '\n' {
            continue;
        }
        is_comment = false;
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => word.push(char),
            (None, '"' | '\'') => quote = Some(char),
            (None, '#') if word.is_empty() => is_comment = true,
            (None, ' ' | '\t') => end_word(&mut words, &mut word),
            (None, '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => {
                end_word(&mut words, &mut word);
                commands.push(std::mem::take(&mut words));
            }
            (None, _) => word.push(char),
        }
    }
    end_word(&mut words, &mut word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

fn end_word(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

#[test]
fn lines_of_a_shell_become_commands() {
    let text =
        "KEY=$(riskgate keys 'a b' --x \"c\") # no command\nrun a \\\n  b | tee f & curl -X P\n";
    let commands: Vec<String> = split_commands(text).iter().map(|words| words.join("·")).collect();
    assert_eq!(commands, ["KEY=$", "riskgate·keys·a b·--x·c", "run·a·b", "tee·f", "curl·-X·P"]);
}

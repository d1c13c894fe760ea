//! Parses the text of a fault specification into rules.

use std::str::FromStr;
use std::time::Duration;

use wire::{Psn, Qpn};

use super::error::{FaultError, FaultProblem};
use super::opcodes::OpcodePattern;
use super::packet_name::CmMessage;
use super::spec::{Action, FaultSpec, REORDER_HOLD, Rate, Rule, UNITS, When};
use crate::tap::Direction;
use crate::times::DAY;

const CHANCE_NAMES: [&str; 5] = ["loss", "dup", "corrupt", "reorder", "delay"];
const CHANCES: &str = "loss, dup, corrupt, reorder, delay and seed";
const ACTIONS: &str = "drop, dup, corrupt, reorder, delay, rnr, late, down, stop and kill";
const CONDITIONS: &str = "context, cm, opcode, qp, psn, nth, every, rate, times and by";

impl FromStr for FaultSpec {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        spec(text)
    }
}

fn spec(text: &str) -> Result<FaultSpec, FaultError> {
    let whole = Piece {
        whole: text,
        start: 0,
        end: text.len(),
    };
    let mut spec = FaultSpec::default();
    let mut seed = None;
    for clause in whole.split(';') {
        let (direction, rest) = clause.direction();
        match rest.split_action() {
            Some((action, conditions)) => spec.rules.push(rule(direction, action, conditions)?),
            None => chances(direction, rest, &mut spec.rules, &mut seed)?,
        }
    }
    spec.seed = seed.unwrap_or_default();
    Ok(spec)
}

/// A part of the text, with its position.
#[derive(Clone, Copy)]
struct Piece<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Piece<'a> {
    fn text(self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    fn is_empty(self) -> bool {
        self.start == self.end
    }

    fn trim(self) -> Self {
        let text = self.text();
        let start = self.start + text.len() - text.trim_start().len();
        let end = start + text.trim().len();
        Piece { start, end, ..self }
    }

    fn at(self, middle: usize, separator: usize) -> (Self, Self) {
        let (start, end) = (self.start, self.end);
        let left = Piece {
            end: start + middle,
            ..self
        };
        let right = Piece {
            start: start + middle + separator,
            end,
            ..self
        };
        (left.trim(), right.trim())
    }

    /// The parts between separators that are not empty.
    fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut start = self.start;
        let parts = self.text().split(separator).map(move |part| {
            let piece = Piece {
                start,
                end: start + part.len(),
                ..self
            };
            start = piece.end + separator.len_utf8();
            piece.trim()
        });
        parts.filter(|piece| !piece.is_empty())
    }

    fn direction(self) -> (Direction, Self) {
        let directions = [("tx", Direction::Transmit), ("rx", Direction::Receive)];
        if let Some(colon) = self.text().find(':') {
            let (name, rest) = self.at(colon, 1);
            let found = directions.iter().find(|(known, _)| *known == name.text());
            if let Some(&(_, direction)) = found {
                return (direction, rest);
            }
        }
        (Direction::Transmit, self)
    }

    /// Splits a rule at the colon after its action; `None` if this is a list of probabilities.
    fn split_action(self) -> Option<(Self, Self)> {
        let mark = self.text().find([':', '=', ','])?;
        (self.text()[mark..].starts_with(':')).then(|| self.at(mark, 1))
    }

    fn name_and_value(self) -> (Self, Self) {
        match self.text().find('=') {
            Some(mark) => self.at(mark, 1),
            None => self.at(self.end - self.start, 0),
        }
    }

    fn wrong(self, problem: FaultProblem) -> FaultError {
        let before = &self.whole[..self.start];
        FaultError {
            column: before.chars().count() + 1,
            problem,
        }
    }

    fn unknown(self, known: &'static str) -> FaultError {
        let found = self.text().to_owned();
        self.wrong(FaultProblem::UnknownName { found, known })
    }
}

fn chances(
    direction: Direction,
    list: Piece<'_>,
    rules: &mut Vec<Rule>,
    seed: &mut Option<u64>,
) -> Result<(), FaultError> {
    let mut given = Vec::new();
    for entry in list.split(',') {
        if let Some((action, _)) = entry.split_action() {
            let action = action.text().to_owned();
            return Err(entry.wrong(FaultProblem::RuleInList { action }));
        }
        let (name, value) = entry.name_and_value();
        if name.text() == "seed" {
            let number = Value::new("seed", "7", name, value)?.number(u64::MAX)?;
            once(seed, number, "seed", name)?;
        } else {
            let rule = chance(direction, name, value)?;
            let known = CHANCE_NAMES.into_iter().find(|it| *it == name.text());
            if let Some(known) = known.filter(|it| given.contains(it)) {
                return Err(name.wrong(FaultProblem::Twice { name: known }));
            }
            given.extend(known);
            rules.push(rule);
        }
    }
    Ok(())
}

fn chance(direction: Direction, name: Piece<'_>, value: Piece<'_>) -> Result<Rule, FaultError> {
    let rate = |known| Value::new(known, "1%", name, value)?.rate().map(Some);
    let (action, rate) = match name.text() {
        "loss" => (Action::Drop, rate("loss")?),
        "dup" => (Action::Duplicate, rate("dup")?),
        "corrupt" => (Action::Corrupt, rate("corrupt")?),
        "reorder" => (Action::Reorder(REORDER_HOLD), rate("reorder")?),
        "delay" => {
            let by = Value::new("delay", "1ms", name, value)?.duration()?;
            (Action::Delay(by), None)
        }
        "drop" => return Err(name.wrong(FaultProblem::NoCondition { action: "drop" })),
        _ => return Err(name.unknown(CHANCES)),
    };
    let when = When {
        rate,
        ..When::default()
    };
    Ok(Rule {
        when,
        ..everything(direction, action)
    })
}

fn everything(direction: Direction, action: Action) -> Rule {
    Rule {
        direction,
        action,
        context: None,
        cm: None,
        opcode: None,
        qp: None,
        psn: None,
        when: When::default(),
    }
}

fn rule(
    direction: Direction,
    action: Piece<'_>,
    conditions: Piece<'_>,
) -> Result<Rule, FaultError> {
    let kind = match action.text() {
        "drop" => Action::Drop,
        "dup" => Action::Duplicate,
        "corrupt" => Action::Corrupt,
        "reorder" => Action::Reorder(REORDER_HOLD),
        "delay" => Action::Delay(Duration::ZERO),
        "rnr" => Action::NotReady,
        "late" => Action::LateEvent(Duration::ZERO),
        "down" => Action::PortDown(Duration::ZERO),
        "stop" => Action::Stop(Duration::ZERO),
        "kill" => Action::Kill,
        _ => return Err(action.unknown(ACTIONS)),
    };
    let direction = if kind.is_for_receivers() {
        Direction::Receive
    } else {
        direction
    };
    let mut rule = everything(direction, kind);
    let mut by = None;
    for entry in conditions.split(',') {
        condition(&mut rule, &mut by, entry)?;
    }
    finish(rule, by, action, conditions)
}

fn condition(
    rule: &mut Rule,
    by: &mut Option<Duration>,
    entry: Piece<'_>,
) -> Result<(), FaultError> {
    const LAST: u64 = 0x00ff_ffff;
    let (name, value) = entry.name_and_value();
    let given = |known, example| Value::new(known, example, name, value);
    let when = &mut rule.when;
    match name.text() {
        "context" => {
            let context = given("context", "1")?.count()?;
            once(&mut rule.context, context, "context", name)
        }
        "cm" => {
            let message = given("cm", "REQ")?.cm_message()?;
            once(&mut rule.cm, message, "cm", name)
        }
        "opcode" => {
            let opcode = given("opcode", "RC_SEND_ONLY")?.opcode()?;
            once(&mut rule.opcode, opcode, "opcode", name)
        }
        "qp" => {
            let qp = Qpn::new(given("qp", "0x11")?.number(LAST)? as u32);
            once(&mut rule.qp, qp, "qp", name)
        }
        "psn" => {
            let psn = Psn::new(given("psn", "5")?.number(LAST)? as u32);
            once(&mut rule.psn, psn, "psn", name)
        }
        "nth" => once(&mut when.nth, given("nth", "3")?.count()?, "nth", name),
        "every" => once(
            &mut when.every,
            given("every", "20")?.count()?,
            "every",
            name,
        ),
        "times" => once(
            &mut when.times,
            given("times", "1")?.count()?,
            "times",
            name,
        ),
        "rate" => once(&mut when.rate, given("rate", "5%")?.rate()?, "rate", name),
        "by" => once(by, given("by", "5ms")?.duration()?, "by", name),
        _ => Err(name.unknown(CONDITIONS)),
    }
}

/// Checks that need all conditions of a rule.
fn finish(
    mut rule: Rule,
    by: Option<Duration>,
    action: Piece<'_>,
    conditions: Piece<'_>,
) -> Result<Rule, FaultError> {
    let When {
        nth, every, rate, ..
    } = rule.when;
    let choices = [nth.is_some(), every.is_some(), rate.is_some()];
    if choices.into_iter().filter(|&given| given).count() > 1 {
        return Err(conditions.wrong(FaultProblem::Exclusive));
    }
    let name = rule.action.name();
    match (rule.action.duration_mut(), by) {
        (Some(duration), Some(by)) => *duration = by,
        // Only a reordered packet has a default duration.
        (Some(&mut Duration::ZERO), None) => {
            return Err(action.wrong(FaultProblem::NoDuration { action: name }));
        }
        (None, Some(_)) => {
            return Err(conditions.wrong(FaultProblem::NeedlessDuration { action: name }));
        }
        (_, None) if conditions.split(',').next().is_none() => {
            return Err(action.wrong(FaultProblem::NoCondition { action: name }));
        }
        (_, None) => {}
    }
    Ok(rule)
}

fn once<T>(
    place: &mut Option<T>,
    value: T,
    name: &'static str,
    at: Piece<'_>,
) -> Result<(), FaultError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(at.wrong(FaultProblem::Twice { name })),
    }
}

/// The value after a `=`.
struct Value<'a> {
    name: &'static str,
    piece: Piece<'a>,
}

impl<'a> Value<'a> {
    fn new(
        name: &'static str,
        example: &'static str,
        at: Piece<'a>,
        piece: Piece<'a>,
    ) -> Result<Self, FaultError> {
        if piece.is_empty() {
            let name = name.to_owned();
            return Err(at.wrong(FaultProblem::MissingValue { name, example }));
        }
        Ok(Value { name, piece })
    }

    fn bad(&self, expected: &'static str) -> FaultError {
        self.piece.wrong(FaultProblem::BadValue {
            name: self.name,
            found: self.piece.text().to_owned(),
            expected,
        })
    }

    fn opcode(&self) -> Result<OpcodePattern, FaultError> {
        let found = self.piece.text();
        OpcodePattern::find(found).ok_or_else(|| {
            let found = found.to_owned();
            self.piece.wrong(FaultProblem::UnknownOpcode { found })
        })
    }

    fn cm_message(&self) -> Result<CmMessage, FaultError> {
        CmMessage::find(self.piece.text())
            .ok_or_else(|| self.bad("a message such as REQ, REP, RTU, REJ, DREQ or DREP, or any"))
    }

    /// A decimal number, or a hexadecimal one after `0x`.
    fn number(&self, largest: u64) -> Result<u64, FaultError> {
        let text = self.piece.text();
        let number = match text.strip_prefix("0x") {
            Some(digits) => digits_only(digits, 16),
            None => digits_only(text, 10),
        };
        let expected = match largest {
            u64::MAX => "a number such as 7 or 0x1f",
            _ => "a number of at most 24 bits, such as 17 or 0x11",
        };
        let fitting = number.filter(|&number| number <= largest);
        fitting.ok_or_else(|| self.bad(expected))
    }

    fn count(&self) -> Result<u64, FaultError> {
        let number = digits_only(self.piece.text(), 10).filter(|&number| number > 0);
        number.ok_or_else(|| self.bad("a count of at least 1, such as 3"))
    }

    fn rate(&self) -> Result<Rate, FaultError> {
        rate(self.piece.text())
            .ok_or_else(|| self.bad("a percentage such as 1% or 0.1%, with at most four decimals"))
    }

    fn duration(&self) -> Result<Duration, FaultError> {
        duration(self.piece.text())
            .ok_or_else(|| self.bad("a whole number with a unit, such as 1ms, 20us or 1s"))
    }
}

/// `from_str_radix` alone would take a sign.
fn digits_only(text: &str, radix: u32) -> Option<u64> {
    let all_digits = text.chars().all(|c| c.is_digit(radix));
    all_digits
        .then(|| u64::from_str_radix(text, radix).ok())
        .flatten()
}

fn rate(text: &str) -> Option<Rate> {
    const DECIMALS: usize = 4;
    let number = text.strip_suffix('%')?.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.is_empty() || decimals.len() > DECIMALS {
        return None;
    }
    let whole = digits_only(whole, 10).filter(|&whole| whole <= 100)?;
    let decimals = digits_only(&format!("{decimals:0<DECIMALS$}"), 10)?;
    Rate::per_million((whole * 10_000 + decimals) as u32)
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.replace('µ', "u");
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, name) = text.split_at(digits);
    let (unit, _) = UNITS
        .into_iter()
        .find(|(_, known)| *known == name.trim_start())?;
    let nanoseconds = digits_only(number, 10)?.checked_mul(unit)?;
    // It is longer than any useful delay, and far from any overflow.
    Some(Duration::from_nanos(nanoseconds)).filter(|&by| by <= DAY)
}

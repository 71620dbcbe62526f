//! `bench`: how fast training steps are on this machine, beside the arithmetic limit and, if asked, beside a peer.

use serde_json::{Value, json};
use tprop::clock::Part;
use tprop::comm::Solo;
use tprop::kernel;
use tprop::mat::{Mat, MatMut, Packed, Start, product_par};
use tprop::method::{MethodConfig, Outline};
use tprop::model::Model;
use tprop::train::{Data, Trainer};
use tprop_report::numbers::percent;
use tprop_report::table::{Table, numbers, words};

use crate::args;
use crate::console::{self, grouped};
use crate::failure::{Failure, Outcome};
use crate::measure::{self, Measured, Until, measure, update};
use crate::prepare::{self, Sizes};
use crate::settings::Settings;

/// Windows of the random text; steps go round and round.
const WINDOWS: usize = 8;
/// Steps of each round that are not measured.
const WARM: usize = 3;
/// Largest learning rate.
const RATE: f64 = 1e-6;

/// Measures, and prints what came out.
pub fn bench(args: &args::Bench) -> Outcome {
    let sources = args::sources(&args.words, &args.settings, None)?;
    let settings = Settings::resolve(&sources)?;
    prepare::machine(settings.threads(), settings.simd())?;
    let model = Model::<f32>::new(settings.model(settings.bench_vocab()));
    let tokens = tokens(&settings.method());
    let sizes = Sizes { tokens, bytes: tokens.saturating_mul(4), ranks: 1 };
    prepare::check_memory(prepare::memory(&settings, &model, sizes))?;
    let text = measure::text(tokens, model.config().vocab);
    let mut config = settings.train();
    // The text has nothing to learn; steps of any size take as long, and these lead nowhere.
    config.optim.rate = config.optim.rate.min(RATE);
    let mut trainer = Trainer::new(&model, Data::new(&text, &[], &[]), config, &Solo)?;
    let (repeat, rounds) = if args.quick { (5, 1) } else { (args.repeat as usize, args.rounds.max(1)) };
    let mut steps = Measured::default();
    let mut product: f64 = 0.0;
    let mut peer: Option<Value> = None;
    // Ours and the peer take turns, so that both see the same machine.
    for round in 0..rounds {
        console::note(format!("round {} of {rounds}", round + 1));
        product = product.max(if args.quick { product_rate(1024, 3)? } else { product_rate(2048, 8)? });
        steps.extend(measure(WARM, Until::Times(repeat), || update(&mut trainer))?);
        if let Some(command) = &args.peer {
            let line = run_peer(command)?;
            let rate = |v: &Value| v["tokens_per_s_best"].as_f64().unwrap_or(0.0);
            if peer.as_ref().is_none_or(|best| rate(&line) > rate(best)) {
                peer = Some(line);
            }
        }
    }
    let per_step = steps.tokens as f64 / steps.seconds.len() as f64;
    let (best, median) = (per_step / steps.best(), per_step / steps.median());
    // As it was done, in products: what a tape still holds is not computed again, and a tolerance may end sweeps early.
    let all = per_step * trainer.step() as f64;
    let gflop = trainer.clock().flops as f64 / all / 1e9;
    let limit = peer.as_ref().and_then(|p| p["gemm_gflops"].as_f64()).unwrap_or(0.0).max(product);
    let fraction = best * gflop / limit;
    let theirs = peer.as_ref().and_then(|p| p["tokens_per_s_best"].as_f64());
    let (threads, simd) = (rayon::current_num_threads(), kernel::path().name());
    if args.json {
        let mut line = json!({
            "tokens_per_s_best": best.round(),
            "tokens_per_s_median": median.round(),
            "gflop_per_token": gflop,
            "gemm_gflops": product,
            "limit_gflops": limit,
            "fraction_of_limit": fraction,
            "threads": threads,
            "simd": simd,
            "method": settings.short_name(),
        });
        if let (Some(peer), Some(theirs)) = (&peer, theirs) {
            line["peer"] = peer.clone();
            line["ratio"] = (best / theirs).into();
        }
        if args.profile {
            let shares = shares(&mut trainer, &steps);
            line["profile"] = shares.into_iter().map(|(part, share)| (part, Value::from(share))).collect();
        }
        return console::line(line);
    }
    let mut out = format!(
        "{} tokens/s (best step), {} (median); {:.2} MFLOP per token\n\
         best matrix product {product:.0} GFLOP/s on {threads} threads ({simd}); {fraction:.2} of the limit of {limit:.0}\n",
        grouped(best as u64),
        grouped(median as u64),
        gflop * 1e3,
    );
    if let Some(theirs) = theirs {
        out += &format!("peer: {} tokens/s; ours is {:.2} times that\n", grouped(theirs as u64), best / theirs);
    }
    if args.profile {
        out += &profile(&mut trainer, &steps);
    }
    console::data(&out)
}

/// Tokens of [`WINDOWS`] windows.
fn tokens(method: &MethodConfig) -> usize {
    (method.least_tokens() - 1).saturating_mul(WINDOWS).saturating_add(1)
}

/// The best of some products of n × n matrices, GFLOP/s.
fn product_rate(n: usize, repeat: usize) -> Outcome<f64> {
    let a: Vec<f32> = (0..n * n).map(|i| (i % 17) as f32 * 0.1).collect();
    let mut c = vec![0.0; n * n];
    let mut b = Packed::default();
    b.pack(Mat::new(&a, n, n));
    let products = measure(0, Until::Times(repeat), || {
        product_par(MatMut::new(&mut c, n, n), Start::Zero, Mat::new(&a, n, n), &b);
        Ok(0)
    })?;
    Ok(2.0 * (n as f64).powi(3) / products.best() / 1e9)
}

/// Runs the peer's command; its last line of output is a JSON object with `tokens_per_s_best`.
fn run_peer(command: &str) -> Outcome<Value> {
    let output = std::process::Command::new("sh").arg("-c").arg(command).output();
    let output = output.map_err(|e| Failure::input(format!("the peer cannot be started: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find_map(|l| serde_json::from_str::<Value>(l).ok());
    line.filter(|v| v["tokens_per_s_best"].is_f64() || v["tokens_per_s_best"].is_u64()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("nothing").to_owned();
        Failure::input(format!("the peer printed no JSON line with tokens_per_s_best; it said: {last}"))
    })
}

/// The part of the steps' time that each of their parts took, `rest` last.
fn shares(trainer: &mut Trainer<f32>, steps: &Measured) -> Vec<(&'static str, f64)> {
    // The clock also saw the steps that warmed up.
    let seen = trainer.step() as f64 / steps.seconds.len() as f64;
    let clock = *trainer.clock();
    let mut shares: Vec<_> = Part::ALL.map(|part| (part.name(), clock.seconds(part) / seen / steps.total())).into();
    shares.push(("rest", 1.0 - shares.iter().map(|s| s.1).sum::<f64>()));
    shares
}

/// Where the time of the steps went.
fn profile(trainer: &mut Trainer<f32>, steps: &Measured) -> String {
    type Share = (&'static str, f64);
    let rate = steps.tokens as f64 / steps.total();
    let alone = move |(part, share): &Share| (*part != "rest" && *share > 0.0).then_some(rate / share);
    let fields = vec![
        words("part", "part", |(part, _): &Share| (*part).to_owned()),
        numbers("share", "share", |(_, share): &Share| Some(*share), percent),
        numbers("tokens/s by itself", "tokens_per_s", alone, |x| grouped(x as u64)),
    ];
    Table::of("profile", "", fields, &shares(trainer, steps)).terminal()
}

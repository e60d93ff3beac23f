//! One host: its connections, the form of its messages, and its token.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue};
use outrigger_oip::InferResponse;
use outrigger_rpc::Settings;
use reqwest::Client;
use tokio::{runtime::Handle, time::Instant};

use crate::{
    Class, Config, Failure, Form, HostConfig,
    config::{Address, TokenHeader},
    dial::Dialer,
    grpc::Grpc,
    message::Request,
    policy::Forms,
    rest::Rest,
    room::Room,
};

/// The most models that are remembered to need binary tensors.
const MODELS: usize = 1024;
/// The age at which a token is read again.
const TOKEN_AGE: Duration = Duration::from_secs(10);
/// The most bytes of a token.
const TOKEN_SIZE: u64 = 64 << 10;

pub(crate) struct Host {
    /// The address, for messages.
    pub(crate) name: Arc<str>,
    dialer: Dialer,
    settings: Settings,
    runtimes: Vec<Handle>,
    /// The largest request and the largest answer in bytes.
    limits: (usize, usize),
    rest: Rest,
    headers: HeaderMap,
    token: Option<Token>,
    forms: Mutex<Known>,
}

/// The form of messages that the host takes, and its gRPC connections while it may take gRPC: they
/// would try to connect for ever.
struct Known {
    forms: Forms,
    grpc: Option<Arc<Grpc>>,
    /// The models whose outputs the host cannot write in JSON.
    binary: HashSet<Arc<str>>,
}

/// A token in a file.
struct Token {
    path: PathBuf,
    header: TokenHeader,
    last: Mutex<Option<(Instant, HeaderValue)>>,
}

impl Host {
    pub(crate) fn new(
        (address, host): (Address, &HostConfig),
        config: &Config,
        (client, dialer): (Client, Dialer),
        runtimes: &[Handle],
    ) -> Self {
        let settings = Settings {
            connections: config.connections,
            connect_timeout: config.connect_timeout,
            ..Settings::default()
        };
        let (max_request, max_answer) = (config.max_request, config.max_answer);
        let Address { base, has_prefix, headers, pinned, token: header, .. } = address;
        let path = host.token_file.clone();
        let name = match pinned {
            None => base.clone(),
            Some(pinned) => format!("{base} at {}", pinned.address.ip()),
        };
        Self {
            name: name.into(),
            rest: Rest::new(client, base, (max_request, max_answer)),
            dialer,
            settings,
            runtimes: runtimes.to_vec(),
            limits: (max_request, max_answer),
            headers,
            token: path.map(|path| Token { path, header, last: Mutex::default() }),
            forms: Mutex::new(Known {
                forms: Forms::untried(has_prefix),
                grpc: None,
                binary: HashSet::new(),
            }),
        }
    }

    /// Sends a request, in the form that the host takes. The first messages find it out.
    pub(crate) async fn infer(
        &self,
        request: &Request,
        id: &str,
        room: &Room<'_>,
    ) -> Result<(InferResponse, Form), Failure> {
        let headers = self.headers(&request.headers).await?;
        let mut form = self.form_of(&request.model);
        loop {
            room.empty();
            let answer = match form {
                Form::Json if request.needs_binary() => Err(Failure::refused(NO_JSON)),
                Form::Grpc => self.grpc().infer(request, id, (&headers, room)).await,
                _ => {
                    let is_trial = !self.is_proven();
                    self.rest.infer(request, id, (form, &headers, is_trial), room).await
                }
            };
            let next = match &answer {
                Err(failure) if failure.needs_binary && form == Form::Json => {
                    self.needs_binary(&request.model)
                }
                answer => self.next_form(form, answer),
            };
            match next {
                // The failure says more than that JSON has no form for the inputs.
                Some(Form::Json) if request.needs_binary() => return answer.map(|it| (it, form)),
                Some(next) => form = next,
                None => return answer.map(|answer| (answer, form)),
            }
        }
    }

    /// The form for messages of a model.
    fn form_of(&self, model: &Arc<str>) -> Form {
        let known = self.known();
        match known.forms.form() {
            Form::Json if known.binary.contains(model) => Form::Binary,
            form => form,
        }
    }

    /// Records that the host cannot write the outputs of a model in JSON. Returns the form for it,
    /// unless that was known and has not helped.
    fn needs_binary(&self, model: &Arc<str>) -> Option<Form> {
        let mut known = self.known();
        let is_new = known.binary.len() < MODELS && known.binary.insert(Arc::clone(model));
        is_new.then_some(Form::Binary)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from an answer. Returns the form to repeat the message in.
    pub(crate) fn next_form<T>(&self, form: Form, answer: &Result<T, Failure>) -> Option<Form> {
        let mut known = self.known();
        let Known { forms, grpc, .. } = &mut *known;
        match answer {
            Ok(_) => {
                forms.worked(form);
                if forms.form() != Form::Grpc {
                    *grpc = None;
                }
                None
            }
            Err(failure) => failure.wrong_form.then(|| forms.fallback(form)).flatten(),
        }
    }

    /// The form of the next message.
    pub(crate) fn form(&self) -> Form {
        self.known().forms.form()
    }

    /// True if the form is known by an answer.
    pub(crate) fn is_proven(&self) -> bool {
        self.known().forms.is_proven()
    }

    pub(crate) fn rest(&self) -> &Rest {
        &self.rest
    }

    pub(crate) fn grpc(&self) -> Arc<Grpc> {
        let mut known = self.known();
        let connect =
            || Arc::new(Grpc::new(&self.dialer, &self.settings, &self.runtimes, self.limits));
        Arc::clone(known.grpc.get_or_insert_with(connect))
    }

    /// The configured headers and the token, after those of the request.
    pub(crate) async fn headers(&self, request: &HeaderMap) -> Result<HeaderMap, Failure> {
        let mut headers = request.clone();
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        if let Some(token) = &self.token {
            headers.insert(token.header.name.clone(), token.value().await?);
        }
        Ok(headers)
    }
}

const NO_JSON: &str = "the host takes JSON only, which has no form for an input: a number that is \
    not finite, text that is not UTF-8, FP16 or BF16";

impl Token {
    async fn value(&self) -> Result<HeaderValue, Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, value)) = last.filter(|(read, _)| read.elapsed() < TOKEN_AGE) {
            return Ok(value);
        }
        let unusable = |problem: &str| {
            let message = format!("the token in {} {problem}", self.path.display());
            Failure::new(Class::Unavailable, message)
        };
        let size = tokio::fs::metadata(&self.path).await.map(|metadata| metadata.len());
        if size.is_ok_and(|size| size > TOKEN_SIZE) {
            return Err(unusable("is too large"));
        }
        let text = tokio::fs::read_to_string(&self.path).await;
        let text = text.map_err(|error| unusable(&format!("cannot be read: {error}")))?;
        let value = self.header.value(&text).ok_or_else(|| unusable("is not valid in a header"))?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

// Buys an item of a flash sale from a page of the shop. An ES module without dependencies; see storefront.md.

/** What the shop said when it was not what was wished for: `code` to act on, `details` the whole answer. */
export class SaleError extends Error {
  constructor(status, details) {
    super(details.message ?? `unexpected answer ${status}`);
    this.name = 'SaleError';
    this.status = status;
    this.code = details.error;
    this.details = details;
  }
}

/**
 * Buys, and repeats what may be repeated until `patience` milliseconds are over. All attempts have one Idempotency-Key, so that they buy once,
 * whatever becomes of the answers. Resolves to `{orderId, already}`; `already` tells that the user has had this order before.
 * Rejects with a SaleError for a refusal, and with whatever fetch rejects with when the shop cannot be reached.
 */
export async function buy(itemId, token, {base = '', quantity = 1, key = crypto.randomUUID(), patience = 30_000, signal} = {}) {
  const {status, body} = await ask(`${base}/api/flash-sales/items/${itemId}/purchase`, {
    method: 'POST',
    headers: {Authorization: `Bearer ${token}`, 'Idempotency-Key': key, 'Content-Type': 'application/json'},
    body: JSON.stringify({quantity}),
    signal,
  }, patience);
  if (status === 202) return {orderId: body.orderId, already: false};
  if (body.error === 'ALREADY_PURCHASED') return {orderId: body.orderId, already: true};
  throw new SaleError(status, body);
}

/**
 * Waits until an order can be paid, and resolves to the order. One that has ended meanwhile is resolved to as well: look at `payable` and `status`.
 * Rejects as `buy` does, also when the order is still not payable after `patience` milliseconds.
 */
export async function waitUntilPayable(orderId, token, {base = '', patience = 120_000, signal} = {}) {
  const until = Date.now() + patience;
  for (let wait = 250; ; wait = Math.min(2 * wait, 2_000)) {
    const {status, body} = await ask(`${base}/api/flash-sales/orders/${orderId}`, {
      headers: {Authorization: `Bearer ${token}`}, cache: 'no-store', signal,
    }, until - Date.now());
    if (status !== 200) throw new SaleError(status, body);
    if (body.payable || body.status !== 'PENDING') return body;
    if (Date.now() + wait > until) throw new SaleError(status, {message: 'the order is not payable yet', ...body});
    await pause(wait * (0.75 + Math.random() / 2), signal);
  }
}

/** A connection that hangs is given up after this, in milliseconds: the shop answers within three seconds, or was not reached. */
const attemptTimeout = 6_000;

/** Sends a request, and again for as long as the answer is one that passes: 429, 503, or none at all. Resolves to the answer that counts. */
async function ask(url, request, patience) {
  const until = Date.now() + patience;
  for (let attempt = 0; ; attempt++) {
    let answer, failure, seconds = 1;
    try {
      const giveUp = AbortSignal.timeout(attemptTimeout);
      const response = await fetch(url, {...request, signal: request.signal ? AbortSignal.any([request.signal, giveUp]) : giveUp});
      answer = {status: response.status, body: await response.json()};
      seconds = Number(response.headers.get('Retry-After')) || 1;
    } catch (error) {
      if (request.signal?.aborted) throw error;
      failure = error; // no network, nobody who answers, or an answer that was cut off
    }
    if (answer && answer.status !== 429 && answer.status !== 503) return answer;
    // Everybody was refused in the same second: without a random part everybody would be back in the same second, too.
    const wait = 1_000 * (seconds + Math.random() * Math.min(2 ** attempt, 8));
    if (Date.now() + wait > until) {
      if (failure) throw failure;
      return answer;
    }
    await pause(wait, request.signal);
  }
}

/** Resolves after so many milliseconds, and rejects as soon as the signal says so. */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => { clearTimeout(timer); reject(signal.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener('abort', stop); resolve(); }, milliseconds);
    signal?.addEventListener('abort', stop, {once: true});
  });
}

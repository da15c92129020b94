// The service worker: without a network, a site is that of the last visit.
//
// It stores all small files when it is installed. The engine stores the large ones, those of the model and the runtime.

/**
 * The parts of a service worker that are used here.
 * @typedef {{ waitUntil: (completed: Promise<unknown>) => void }} LifeEvent
 * @typedef {{ request: Request, respondWith: (response: Promise<Response>) => void }} FetchEvent
 *
 * @typedef {object} ServiceWorkerScope
 * @property {{ scope: string }} registration
 * @property {{ claim: () => Promise<void> }} clients
 * @property {((type: "install" | "activate", listener: (event: LifeEvent) => void) => void) &
 *   ((type: "fetch", listener: (event: FetchEvent) => void) => void)} addEventListener
 */

// The build writes these values. pages: folders with an index.html, with a slash at their ends.
/** @type {{ version: string, pages: string[], files: string[] }} */
const SITE = { version: "", pages: [], files: [] };

const worker = /** @type {ServiceWorkerScope} */ (/** @type {unknown} */ (self));
const { scope } = worker.registration;
// Caches whose names begin with "headlight-" are those of the engine. Other sites on the same host have other scopes.
const OWN_CACHES = `site ${scope} `;
const CACHE = OWN_CACHES + SITE.version;

worker.addEventListener("install", (event) => event.waitUntil(storeFiles()));
worker.addEventListener("activate", (event) => event.waitUntil(deleteOldCaches()));
worker.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  if (method !== "GET" || !url.startsWith(scope)) return;
  const { pathname, search } = new URL(url);
  const path = pathname.slice(new URL(scope).pathname.length);
  if (mode === "navigate") event.respondWith(findPage(event.request, path, search));
  else if (path.startsWith("model/") && SITE.files.includes(path)) event.respondWith(newest(event.request));
  else if (SITE.files.includes(path)) event.respondWith(stored(event.request));
});

async function storeFiles() {
  const cache = await caches.open(CACHE);
  await Promise.all(SITE.pages.map((page) => storePage(cache, page)));
  await cache.addAll(SITE.files.map(latest));
}

/**
 * Store the page of a folder under the address of the folder. Some servers redirect the request for its index.html, and
 * a browser accepts no redirected response for a page: a copy is stored.
 * @param {Cache} cache
 * @param {string} page
 */
async function storePage(cache, page) {
  const response = await fetch(latest(`${page}index.html`));
  if (!response.ok) throw new Error(`${page}index.html: status ${response.status}`);
  await cache.put(new URL(page, scope), new Response(response.body, { headers: response.headers }));
}

/**
 * Return the request for a file that does not use an outdated copy of the browser.
 * @param {string} path
 */
const latest = (path) => new Request(new URL(path, scope), { cache: "no-cache" });

/** The former version is no longer in use: a new worker starts when all pages of the site are closed. */
async function deleteOldCaches() {
  const names = (await caches.keys()).filter((name) => name.startsWith(OWN_CACHES) && name !== CACHE);
  await Promise.all(names.map((name) => caches.delete(name)));
  await worker.clients.claim();
}

/**
 * Return the page of an address, whatever its query string.
 * @param {Request} request
 * @param {string} path
 * @param {string} search
 */
async function findPage(request, path, search) {
  const page = path.replace(/(^|\/)index\.html$/, "$1");
  if (SITE.pages.includes(`${page}/`)) return Response.redirect(new URL(`${page}/${search}`, scope));
  return SITE.pages.includes(page) ? stored(new Request(new URL(page, scope)), request) : fetch(request);
}

/**
 * Return a stored response, or that of the network if the browser deleted it.
 * @param {Request} key
 * @param {Request} [request] default: the key
 */
async function stored(key, request = key) {
  return (await caches.match(key, { cacheName: CACHE, ignoreSearch: true, ignoreVary: true })) ?? fetch(request);
}

/**
 * Return the response of the network, or the stored one without a connection. The weights of the model, which are not
 * stored here, are of the same version.
 * @param {Request} request
 */
const newest = (request) => fetch(request).catch(() => stored(request));

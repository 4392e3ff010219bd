// Package web serves pages and knows none of them: routes and who may take them, the cache that shares the answers of
// looks, the streams that keep open pages up to date, forms and their changes, templates, static files, and the errors
// that a page shows. The pages stand in package ui.
//
// A page has a look, a template and live regions. A look asks the client and returns a view model. Live regions are
// parts of the page that are sent again when their HTML changes. A part is a second look that may be slow. The
// dashboard reads and changes through the public API only, so it has no statements and no locks of its own.
//
//	GET page ──► guard: Authorize ──► cache ──► template ──► HTML
//	                                    │
//	                 answer younger than a second, or than twenty times what it cost: share it
//	                 a look is under way: wait for its answer         else: look, for at most 5 s
//
//	GET page as a stream of events ──► guard ──► each second, until 5 min are over or the server shuts down:
//	    cache ──► regions whose HTML is another one ──► event: region
//	              no answer from Postgres / it is back ──► event: outage / back
//	              nothing can change any more           ──► event: settled     the run is gone ──► event: gone
//
//	POST change ──► same origin? ──► guard ──► form ──► Authorize again, if the form says what it is about ──► once
//	    ──► client, with Actor and Reason ──► the cache's answers expire ──► redirect
//
// # The cache
//
//   - A look knows nothing of the viewer. The key of an answer is the page's path and query, so all browsers share it.
//     The viewer decides only whether a page is answered, and which buttons it has: the template asks Authorize for
//     each. So Authorize must be quick, because streams render once a second.
//   - A look outlives its caller, because other viewers wait for the same answer. It ends after 5 seconds. The cache
//     keeps the last good answer of 256 pages. While the database is away, a page shows that answer and since when
//     there is no other. An error such as "not found" removes it.
//   - A part of the layout, such as the counts of the navigation, is one answer for all pages. A page waits for it if
//     there was none within a minute, so its look is short. Streams keep it up to date.
//   - The cost of a look decides how long its answer is shared: a view takes at most a twentieth of one connection's
//     time. A look that failed says nothing about the cost, so the next one follows soon after an outage.
//
// # Streams
//
// A stream keeps a hash of each region and not the HTML. It renders all regions of its page each second, and sends
// those with another hash. So a region must not contain how long ago something was: the browser computes that. Streams
// end after 5 minutes, so that Authorize is asked again. http.Server.Shutdown ends them, because it does not end the
// contexts of requests.
//
// # Routes and forms
//
//   - Every route is registered with its action. The guard is the only way to a page or a change, and asks Authorize
//     before anything is read. Without Authorize it refuses each change. The form of a limit or a pause says what it is
//     about, so the action gets its ID only when the form has been read, and Authorize is asked again. A POST whose
//     Sec-Fetch-Site or Origin is another site's is refused before.
//   - A form is carried out once: it has a token, and a process remembers the last 512. A second click gets the answer
//     of the first. A change goes on when its browser goes away. A form that failed may be sent again. Changes by other
//     processes at the same time are decided by the client's own rules, such as the ID of a message, which is the
//     token.
//
// # Pages that could be expensive
//
//   - Many runs: the plan is a dry run, and its form names the runs, up to 1,000. Each answer changes some of them, and
//     has a form for the rest, which the page sends by itself. So a change of many runs needs no state in the server,
//     and stops when the page is closed.
//   - The steps of a run are read without payloads, and again while the run makes new ones. The page asks for the
//     payloads of its own hundred steps, once for each attempt and status.
//   - Throughput: no index has the ends of runs by time, because each end would write to it. So the ends of the last
//     minutes are looked up among the runs that were started lately, and every ten minutes among all.
//   - Payloads become visible in one function, which knows HidePayloads. Templates get its result and never the bytes.
//
// Tests: TestFiftyViewersCostWhatOneCosts, TestCacheLooksLessOftenIfThatTakesLong, TestAPageOutlivesAnOutage,
// TestAuthorizeIsAskedForEveryRoute, TestChangesNeedAuthorizeAndTheSameOrigin, TestPagesHidePayloads,
// TestAStreamEndsWithItsServer.
package web

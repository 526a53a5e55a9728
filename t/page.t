#!/usr/bin/env bash
# page.t - tests of the page in a real browser, beside a run that trains (make check-page)
#
# Chromium without a window does what chromedriver is told over HTTP.  What is missing is installed from Debian's packages,
# where root runs this.  PACELINE_SHOTS=FOLDER keeps pictures of the page.
packages="chromium chromium-driver curl libjs-chart.js nginx-light"
if [ "$(dpkg-query -W -f '${db:Status-Status}\n' $packages 2>/dev/null | grep -cx installed)" != "$(wc -w <<<"$packages")" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "check-page needs the packages $packages: install them, or let root run it" >&2
        exit 1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >&2 || exit 1
fi

. "$(dirname "$0")/tap.sh"
. "$srcdir/t/dashboard.sh"

# ---- the browser ----

# driver METHOD PATH [JSON] - in out what comes of it
driver() {
    out=$(curl -s --max-time 60 -X "$1" ${3+-H 'Content-Type: application/json' -d "$3"} "http://127.0.0.1:$driver/$2")
    out=${out#'{"value":'}
    out=${out%'}'}
    out=${out%%\\n#0 0x*}
}

driver_port() {
    driver=$(sed -n 's/.* started successfully on port \([0-9]*\).*/\1/p' driver.out)
    [ "$driver" ]
}

start_browser() {
    session=
    trap '[ ! "$session" ] || driver DELETE "$session"; kill "$driver_pid" "$fit" 2>.err; rm -rf "$folder"' EXIT
    chromedriver --port=0 >driver.out 2>&1 </dev/null &
    driver_pid=$!
    holds 30 driver_port
    driver POST session '{"capabilities": {"alwaysMatch": {"browserName": "chrome",
        "goog:loggingPrefs": {"browser": "ALL"},
        "goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--disable-background-networking", "--user-data-dir='"$folder"'/browser", "--window-size=1280,1000"]}}}}'
    session=session/$(sed 's/.*"sessionId":"\([^"]*\)".*/\1/' <<<"$out")
    driver POST "$session/timeouts" '{"script": 30000}'
}

stop_browser() {
    driver DELETE "$session"
    session=
    kill "$driver_pid"
    wait "$driver_pid" 2>.err
}

devtools() {
    driver POST "$session/goog/cdp/execute" "{\"cmd\": \"$1\", \"params\": $2}"
}

# js SCRIPT - in out what it returns, in the page
js() {
    local script=${1//\\/\\\\}
    script=${script//\"/\\\"}
    driver POST "$session/execute/sync" "{\"script\": \"${script//$'\n'/\\n}\", \"args\": []}"
    out=${out#\"}
    out=${out%\"}
}

# page_has SCRIPT - it returns true
page_has() {
    js "return $1"
    [ "$out" = true ]
}

# shows SENTENCE SCRIPT - it returns true, now or soon
shows() {
    ok "$1" holds 30 page_has "$2"
}

press() {
    driver POST "$session/actions" '{"actions": [{"type": "key", "id": "keys", "actions": [
        {"type": "keyDown", "value": "'"$1"'"}, {"type": "keyUp", "value": "'"$1"'"}]}]}'
}

# click ID - by the mouse, where it is
click() {
    driver POST "$session/element" '{"using": "css selector", "value": "#'"$1"'"}'
    driver POST "$session/element/$(sed 's/.*:"\([^"]*\)".*/\1/' <<<"$out")/click" '{}'
}

# screen WIDTH HEIGHT light|dark
screen() {
    local mobile=false
    [ "$1" -gt 500 ] || mobile=true
    devtools Emulation.setDeviceMetricsOverride \
        "{\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": $mobile}"
    devtools Emulation.setEmulatedMedia "{\"features\": [{\"name\": \"prefers-color-scheme\", \"value\": \"$3\"}]}"
    holds 10 page_has "innerWidth === $1 && matchMedia('(prefers-color-scheme: $3)').matches"
}

# shot NAME [light|dark] - the whole page as a picture
shot() {
    [ "${PACELINE_SHOTS-}" ] || return
    js "return innerWidth + ' ' + Math.ceil(document.documentElement.scrollHeight)"
    screen $out "${2:-light}"
    js "return new Promise(done => setTimeout(done, 1500))"
    devtools Page.captureScreenshot '{}'
    sed 's/.*"data":"\([^"]*\)".*/\1/' <<<"$out" | base64 -d >"$PACELINE_SHOTS/$1.png"
}

open_page() {
    complaints
    driver POST "$session/url" "{\"url\": \"$1\"}"
    holds 30 page_has "document.getElementById('link').dataset.state === 'live'" && return
    echo "Bail out! the page is not live: $out"
    exit 1
}

# complaints - what the browser has to say since it was asked last
complaints() {
    driver POST "$session/se/log" '{"type": "browser"}'
    out=$(grep -oE '"message":"[^}]*' <<<"$out")
}

nothing_to_complain_of() {
    complaints
    is "$out" "" "the browser has nothing to complain of, also by the page's policy"
}

# ---- tests ----

trains_two() {
    train --set trainer.devices=2 --set trainer.strategy=ddp --set trainer.launcher=spawn \
        --set trainer.gradient_clip_val=1 \
        --set 'callbacks=[{"name": "lr_monitor"}, {"name": "model_checkpoint", "every_n_epochs": 20}]' "$@"
}

# What a picture shows where it is not empty.
drawn="const drawn = id => { const c = document.getElementById(id), d = c.getContext('2d').getImageData(0, 0, c.width,
    c.height).data; return d.some(v => v); };"

# What the cards of the summary say, by name.
cards="Object.fromEntries([...document.querySelectorAll('#cards > div')].map(c => [c.firstChild.textContent, c.lastChild.textContent]))"

every_panel_is_filled_while_a_run_trains() {
    trains_two
    screen 1280 1000 light
    open_page "$url"
    ok "the token has left the address" page_has "location.search === '' && !document.cookie"
    for chart in loss rate time norm lr; do
        shows "chart $chart has a line of points" "charts.$chart.data.datasets.some(d => d.data.length > 2)"
        shows "and a picture" "(() => { $drawn return drawn('$chart'); })()"
    done
    shows "the norm has the line where it is clipped" \
        "charts.norm.data.datasets.some(d => d.label === 'clip' && d.data.every(p => p.y === 1))"
    shows "step times are told by p50 and p95" "charts.time.data.datasets.map(d => d.label).join() === 'p50,p95'"
    shows "of which windows is told" "/since the report before/.test(document.getElementById('time').closest('figure').textContent)"
    shows "those of the newest report stand beside those of the run" "(() => { const run = current(), c = $cards;
        return c['Step p50, now'] === duration(newest(run, 'step_seconds_p50')) && c['Step p50, run'] === duration(run.run_p50)
        && c['Step p95, now'] === duration(newest(run, 'step_seconds_p95')) && c['Step p95, run'] === duration(run.run_p95); })()"
    shows "each of two ranks has a strip" "current().strip.length > 2 && current().strip[0][1].length === 2"
    shows "a picture of it" "(() => { $drawn return drawn('strip'); })()"
    shows "and stages of its steps" "document.querySelectorAll('#stages tbody tr').length === 2"
    shows "mailboxes are shown" "document.querySelectorAll('#lanes tbody tr').length > 8"
    js "document.getElementById('newest-box').open = true"
    shows "and the newest messages" "document.querySelectorAll('#newest tbody tr').length > 8"
    shows "checkpoints" "/epoch|step|last/.test(document.getElementById('saves').textContent)"
    shows "figures" "/train_loss/.test(document.getElementById('figures').textContent)"
    shows "the log" "document.querySelectorAll('#log tbody tr .text').length > 0"
    shows "whose columns stand as they were written" \
        "[...document.querySelectorAll('#log .text')].some(e => / {3}parameters  in /.test(e.innerText))"
    for size in "1280 1000" "390 844"; do
        for scheme in light dark; do
            screen $size $scheme
            shot "training-${size%% *}-$scheme" "$scheme"
        done
    done
    nothing_to_complain_of
    js "return performance.getEntriesByType('resource').map(e => e.name).sort().join(' ')"
    like "$out" "^$base/chart.js .*$base/page.css $base/page.js$" "it has asked for its own files"
    is "$(tr ' ' '\n' <<<"$out" | grep -v "^$base/")" "" "and for nothing outside"
    stop
}

the_only_rank_has_stages_and_no_strip() {
    train
    screen 1280 1000 light
    open_page "$url"
    shows "stages of its steps" "document.querySelectorAll('#stages tbody tr').length === 1
        && ['forward', 'backward', 'optimizer'].every(s => current().stages[0][stages.indexOf(s)] > 0)"
    shows "and nothing to compare it with" "document.getElementById('strip-box').hidden
        && /only rank/.test(document.getElementById('ranks-text').textContent)"
    shot alone
    nothing_to_complain_of
    stop
}

# It is stopped within an epoch, which is long: between two of them nothing is said to stand still.
a_rank_that_is_silent_is_named() {
    points
    for _ in {1..100}; do cat points.csv; done >many.csv
    trains_two --set data.path=many.csv
    screen 1280 1000 light
    open_page "$url"
    shows "two ranks train" "current().strip.length > 1"
    shows "nothing is amiss" "document.getElementById('amiss').hidden"
    local silent
    silent=$(pgrep -P "$fit" | tail -n 1)
    kill -STOP "$silent"
    shows "nothing is done" "/^Nothing has been done for /.test(document.getElementById('amiss').innerText)"
    shows "as a rank is silent" "/Rank [01]: mute, heard of .* process $silent/.test(document.getElementById('amiss').innerText)"
    shows "no rate is left of what was" "(c => c['Samples/s'] === '0' && c.Left === '–')($cards)"
    shows "nor is a rank called the slowest" "!/slowest/.test(document.getElementById('ranks-text').textContent)"
    shot silent
    kill -CONT "$silent"
    shows "until it is heard again" "document.getElementById('amiss').hidden"
    nothing_to_complain_of
    stop
}

buttons_take_the_mouse() {
    trains_two
    open_page "$url"
    click do-pause
    shows "the run has paused" "document.getElementById('doing').textContent === 'paused'"
    ok "which the server says too" holds 30 state_is paused
    js "window.stood = $cards; return JSON.stringify(window.stood)"
    like "$out" 'Samples/s[^,]*–' "no samples come"
    js "window.was = seen.last.now"
    ok "a pause is none of its time" holds 30 page_has "seen.last.now > window.was + 2"
    js "return $cards.Time === window.stood.Time && $cards.Left === window.stood.Left"
    is "$out" true "Time and Left stand still"
    shot paused
    click do-go_on
    shows "it goes on" "document.getElementById('doing').dataset.state === 'on'"
    click do-save
    shows "a checkpoint is saved" "current().saves.some(s => s.text.includes('asked-step='))"
    click do-stop
    driver POST "$session/alert/accept" '{}'
    wait "$fit"
    is "$?" 0 "the run has stopped"
    shows "as the page says to the end" "current().ended && document.getElementById('doing').textContent === 'stopped'"
    like "$(text fit.out)" '^stopped after [0-9]+ epochs?, [0-9]+ steps .*: the dashboard$' "and the command"
    js "return current().epochs + ' ' + current().step"
    is "$out" "$(sed -n 's/^stopped after \([0-9]*\) epochs*, \([0-9]*\) steps* .*/\1 \2/p' fit.out)" "with the same figures"
    js "return $cards.Epoch + '; ' + document.getElementById('ending').textContent"
    like "$out" '^[0-9]+ done; Stopped after [0-9,]+ epochs?, [0-9,]+ steps?: the dashboard. Saved as [^ ]+\.$' \
        "epochs, steps, why, and what was saved"
    js "Object.assign(current(), {step: 9476, total_steps: 12660}); showSummary(current()); return $cards.Step"
    is "$out" "9,476 / 12,660" "neither the step nor how many there are to be is rounded"
    shows "and leaves nothing to press" "[...document.querySelectorAll('#buttons button')].every(b => b.hidden)"
    shot stopped
}

# tab_to ID - by the keyboard alone; the focus can be seen there
tab_to() {
    for ((k = 0; k < 20; k++)); do
        page_has "document.activeElement.id === '$1'" && break
        press '\uE004'
    done
    page_has "document.activeElement.id === '$1' && getComputedStyle(document.activeElement).outlineStyle === 'solid'
        && parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2"
}

buttons_take_the_keyboard_alone() {
    trains_two
    open_page "$url"
    ok "Tab leads to a button, and one sees where one is" tab_to do-pause
    press '\uE007'
    shows "Enter pauses the run" "document.getElementById('doing').textContent === 'paused'"
    shows "the focus is on what takes its place" "document.activeElement.id === 'do-go_on'"
    shot focus
    press ' '
    shows "a space lets it go on" "document.getElementById('doing').dataset.state === 'on'"
    shows "and the focus is back" "document.activeElement.id === 'do-pause'"
    ok "Tab leads on" tab_to do-save
    press '\uE007'
    shows "a checkpoint is saved" "current().saves.some(s => s.text.includes('asked-step='))"
    shows "after which the focus is still there" "document.activeElement.id === 'do-save'"
    ok "and on" tab_to do-stop
    press '\uE007'
    driver POST "$session/alert/dismiss" '{}'
    ok "and to the scale of step times" tab_to log-time
    press ' '
    shows "which a space changes, and that of no other" "charts.time.options.scales.y.type === 'logarithmic'
        && charts.loss.options.scales.y.type === 'linear' && document.activeElement.ariaPressed === 'true'"
    goes_on
    nothing_to_complain_of
    stop
}

contrast="const light = c => { const p = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]; };
    const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
    const poor = [...document.querySelectorAll('body *')].filter(e => e.offsetParent && [...e.childNodes].some(n =>
    n.nodeType === 3 && n.data.trim())).filter(e => { const a = light(getComputedStyle(e).color), b = light(back(e));
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5; });"

it_is_readable_on_a_phone_and_in_the_dark() {
    trains_two
    open_page "$url"
    shows "there is something to read" "current() && current().step > 0"
    js "document.getElementById('newest-box').open = true"
    for width in 320 360 390 412 768 1280; do
        for scheme in light dark; do
            screen $width 844 $scheme
            [ $width != 360 ] || shot "phone-$width-$scheme" $scheme
            shows "$width pixels, $scheme: no scrolling sideways" "document.documentElement.scrollWidth <= $width"
            js "return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)
                .map(box => box.querySelector('table').id).join()"
            is "$out" "" "nor within a table"
            shows "each rank's stages are told" "[...document.querySelectorAll('#stages td.some')].filter(td => td.offsetWidth > 20
                && /[0-9]/.test(td.textContent)).length === 12"
            js "$contrast return poor.map(e => e.tagName + ' ' + e.id + ' ' + e.className + ': ' + e.textContent).join('; ')"
            is "$out" "" "all text stands out from what is behind it"
        done
    done
    screen 390 844 light
    shows "a thumb hits the buttons" \
        "[...document.querySelectorAll('#buttons button')].every(b => b.hidden || b.offsetHeight >= 44)"
    js "return getComputedStyle(document.body).backgroundColor"
    local light=$out
    screen 390 844 dark
    js "return getComputedStyle(document.body).backgroundColor"
    ok "dark is another colour" test "$out" != "$light"
    screen 1280 1000 light
    nothing_to_complain_of
    stop
}

# What the page has is what the server has, and each point is there once.
as_the_server="(async () => { const state = await (await fetch('state')).json(), run = current(), theirs = state.runs[0];
    const steps = run.points.map(p => p[0]); return state.runs.length === seen.runs.size && run.number === theirs.number
    && theirs.points.length > 0 && run.began === theirs.began && new Set(steps).size === steps.length
    && theirs.points.slice(0, run.points.length).every((p, k) => JSON.stringify(p.slice(0, 3))
    === JSON.stringify(run.points[k].slice(0, 3))) && run.points.length >= theirs.points.length - 3; })()"

says_lost="document.getElementById('link').dataset.state !== 'live'"

names_of_markup_are_text() {
    train --set trainer.run_name='<img src=x onerror=window.hacked=1><script>window.hacked=1<\script>"&amp;'
    open_page "$url"
    shows "it has the run" "current() && current().points.length > 2"
    shows "its name is shown as it is" "document.body.innerText.includes('<img src=x onerror=window.hacked=1>')"
    shows "and nothing of the page" "document.querySelectorAll('[onerror], body script').length === 0"
    shows "nor anything that was run" "window.hacked === undefined"
    shows "nor too wide" "document.documentElement.scrollWidth <= innerWidth"
    nothing_to_complain_of
    stop
}

it_finds_the_next_server_at_the_same_place() {
    export PACELINE_DASHBOARD_TOKEN_FILE=$folder/token
    train
    open_page "$url"
    shows "it has points" "current() && current().points.length > 2"
    js "window.first = seen.runs.get(1).began; window.boot = seen.last.wall"
    stop
    shows "it says that nobody is there" "$says_lost"
    ok "the run has ended there" page_has "current().ended && current().doing === 'stopped'"
    shot lost
    at=$port train
    shows "and is live again" "document.getElementById('link').dataset.state === 'live'"
    shows "with the figures of the next run alone" "window.boot !== seen.last.wall && current().points.length > 2"
    shows "all of them" "$as_the_server"
    stop
    unset PACELINE_DASHBOARD_TOKEN_FILE
}

it_goes_on_after_the_connection_broke() {
    train
    start_nginx
    open_page "$behind/?token=$token"
    shows "behind a proxy it has points" "current() && current().points.length > 2"
    stop_nginx
    shows "when the proxy is gone it says so" "$says_lost"
    shows "and that no button does anything" "document.getElementById('do-pause').ariaDisabled === 'true'"
    js "window.had = current().points.length"
    goes_on
    nginx_again
    shows "it is live again" "document.getElementById('link').dataset.state === 'live'"
    shows "and has what came meanwhile" "current().points.length > window.had"
    shows "all of it, once" "$as_the_server"
    click do-pause
    shows "buttons work there" "document.getElementById('doing').textContent === 'paused'"
    stop_nginx
    stop
}

start_browser
run every_panel_is_filled_while_a_run_trains trains
run the_only_rank_has_stages_and_no_strip trains
run a_rank_that_is_silent_is_named trains
run buttons_take_the_mouse trains
run buttons_take_the_keyboard_alone trains
run it_is_readable_on_a_phone_and_in_the_dark trains
run names_of_markup_are_text trains
run it_finds_the_next_server_at_the_same_place trains
run it_goes_on_after_the_connection_broke trains
stop_browser
done_testing

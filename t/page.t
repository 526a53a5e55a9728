#!/usr/bin/env bash
# page.t - tests of the page in a real browser, beside a run that trains (make check-page)
#
# Chromium without a window obeys chromedriver, which takes commands over HTTP.  Missing packages are installed from Debian,
# where root runs this.  PACELINE_SHOTS=FOLDER keeps pictures of the page.
packages="chromium chromium-driver curl libjs-dygraphs nginx-light"
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
    holds 30 page_has "innerWidth === $1 && matchMedia('(prefers-color-scheme: $3)').matches"
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
    out=$(grep -oE '"message":"[^}]*' <<<"$out" | grep -v willReadFrequently)         # which is of the tests themselves
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
drawn="const filled = c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v);
    const drawn = id => filled(document.getElementById(id));
    const plotted = key => [...charts.get(key).plot.querySelectorAll('canvas')].some(filled);"

# What the cards of the summary say, by name.
cards="Object.fromEntries([...document.querySelectorAll('#cards > div')].map(c => [c.firstChild.textContent, c.lastChild.textContent]))"

every_panel_is_filled_while_a_run_trains() {
    trains_two
    screen 1280 1000 light
    open_page "$url"
    ok "the token has left the address" page_has "location.search === '' && !document.cookie"
    for chart in loss samples_per_second step_seconds grad_norm lr; do
        shows "chart $chart has a line of points" "charts.has('$chart') && charts.get('$chart').series.some(s => s.y.length > 2)"
        shows "and a picture" "(() => { $drawn return plotted('$chart'); })()"
    done
    shows "the norm has the line where it is clipped" \
        "/clipped at 1/.test(charts.get('grad_norm').legend.textContent) && charts.get('grad_norm').file[0].at(-1) === 1"
    shows "step times are shown by p50 and p95" "charts.get('step_seconds').series.map(s => s.label).join() === 'p50,p95'"
    shows "with their window" "/ms, recent steps/.test(charts.get('step_seconds').figure.textContent)"
    shows "engine internals are folded" "!document.getElementById('engine').open"
    js "document.getElementById('engine').open = true"
    shows "those of the newest report stand beside those of the run" "(() => { const run = current(), c = $cards;
        return c['Step time p50, now'] === duration(newest(run, 'step_seconds_p50')) && c['Step time p50, run'] === duration(run.run_p50)
        && c['Step time p95, now'] === duration(newest(run, 'step_seconds_p95')) && c['Step time p95, run'] === duration(run.run_p95); })()"
    shows "each of two ranks has a strip" "current().strip.length > 2 && current().strip[0][1].length === 2"
    shows "a picture of it" "(() => { $drawn return drawn('strip'); })()"
    shows "and stages of its steps" "document.querySelectorAll('#stages tbody tr').length === 2"
    shows "mailboxes are shown" "document.querySelectorAll('#actors tbody tr').length > 8"
    js "document.getElementById('newest-box').open = true"
    shows "and the newest messages" "document.querySelectorAll('#newest tbody tr').length > 8"
    shows "checkpoints" "/epoch|step|last/.test(document.getElementById('saves').textContent)"
    shows "metrics" "/Loss, training.*train_loss/.test(document.getElementById('metrics').textContent)"
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
    like "$out" "^$base/drawings.js $base/dygraph.js .*$base/page.css $base/page.js$" "it has asked for its own files"
    is "$(tr ' ' '\n' <<<"$out" | grep -v "^$base/")" "" "and for nothing outside"
    stop
}

the_only_rank_has_stages_and_no_strip() {
    train
    screen 1280 1000 light
    open_page "$url"
    js "document.getElementById('engine').open = true"
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
    shows "no warning is shown" "document.getElementById('amiss').hidden"
    local silent
    silent=$(pgrep -P "$fit" | tail -n 1)
    kill -STOP "$silent"
    shows "nothing is done" "/^No progress for /.test(document.getElementById('amiss').innerText)"
    shows "as a rank is silent" "/Rank [01]: silent, last message .* process $silent/.test(document.getElementById('amiss').innerText)"
    shows "no old rate is left" "(c => c['Samples/s'] === '0' && c['Time left'] === '–')($cards)"
    shows "nor is a rank called the slowest" "!/slowest/.test(document.getElementById('ranks-text').textContent)"
    shot silent
    kill -CONT "$silent"
    shows "until its messages come again" "document.getElementById('amiss').hidden"
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
    js "return ['Time elapsed', 'Time left'].every(name => $cards[name] === window.stood[name])"
    is "$out" true "both times stand still"
    shot paused
    click do-continue
    shows "it continues" "document.getElementById('doing').dataset.state === 'on'"
    click do-save
    shows "a checkpoint is saved" "current().saves.some(s => s.text.includes('asked-step='))"
    click do-stop
    driver POST "$session/alert/accept" '{}'
    wait "$fit"
    is "$?" 0 "the run has stopped"
    shows "as the page says to the end" "current().ended && document.getElementById('doing').textContent === 'stopped'"
    like "$(text fit.out)" '^stopped after [0-9]+ epochs?, [0-9]+ steps .*: requested on the dashboard$' "and the command"
    js "return current().epochs + ' ' + current().step"
    is "$out" "$(sed -n 's/^stopped after \([0-9]*\) epochs*, \([0-9]*\) steps* .*/\1 \2/p' fit.out)" "with the same figures"
    js "return $cards.Epoch + '; ' + document.getElementById('ending').textContent"
    like "$out" '^[0-9]+ done; Stopped after [0-9,]+ epochs?, [0-9,]+ steps?: requested on the dashboard. Newest checkpoint: [^ ]+\.$' \
        "epochs, steps, why, and what was saved"
    js "Object.assign(current(), {step: 9476, total_steps: 12660}); showSummary(current()); return $cards.Step"
    is "$out" "9,476 / 12,660" "neither the step nor how many there are to be is rounded"
    shows "and leaves nothing to press" "[...document.querySelectorAll('#buttons button')].every(b => b.hidden)"
    shot stopped
}

# tab_to ID - by the keyboard alone; the focus can be seen there
tab_to() {
    for ((k = 0; k < 40; k++)); do
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
    shows "the focus is on what takes its place" "document.activeElement.id === 'do-continue'"
    shot focus
    press ' '
    shows "a space continues it" "document.getElementById('doing').dataset.state === 'on'"
    shows "and the focus is back" "document.activeElement.id === 'do-pause'"
    ok "Tab leads on" tab_to do-save
    press '\uE007'
    shows "a checkpoint is saved" "current().saves.some(s => s.text.includes('asked-step='))"
    shows "after which the focus is still there" "document.activeElement.id === 'do-save'"
    ok "and on" tab_to do-stop
    press '\uE007'
    driver POST "$session/alert/dismiss" '{}'
    ok "and to the scale of step times" tab_to log-step_seconds
    press ' '
    shows "which a space changes, and no other chart's" "charts.get('step_seconds').graph.getOption('logscale')
        && !charts.get('loss').graph.getOption('logscale') && document.activeElement.ariaPressed === 'true'"
    run_continues
    nothing_to_complain_of
    stop
}

contrast="const light = c => { const p = c.match(/[0-9.]+/g).slice(0, 3).map(v => /^color/.test(c) ? v : v / 255).map(v => v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]; };
    const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
    const poor = [...document.querySelectorAll('body *')].filter(e => e.offsetParent && [...e.childNodes].some(n =>
    n.nodeType === 3 && n.data.trim())).filter(e => { const a = light(getComputedStyle(e).color), b = light(back(e));
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5; });"

the_page_is_readable_on_a_phone_and_in_the_dark() {
    trains_two
    open_page "$url"
    shows "there is something to read" "current() && current().step > 0"
    js "document.getElementById('engine').open = document.getElementById('newest-box').open = true"
    for width in 320 360 390 412 768 1280; do
        for scheme in light dark; do
            screen $width 844 $scheme
            [ $width != 360 ] || shot "phone-$width-$scheme" $scheme
            shows "$width pixels, $scheme: no scrolling sideways" "document.documentElement.scrollWidth <= $width"
            js "return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)
                .map(box => box.querySelector('table').id).join()"
            is "$out" "" "nor within a table"
            shows "each rank's stages are shown" "[...document.querySelectorAll('#stages td.some')].filter(td => td.offsetWidth > 20
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
as_the_server="(async () => { const state = await (await fetch('state')).json(), theirs = state.runs[0];
    for (let k = 0; k < 50 && current().curves.step.length < theirs.points.length; k++) await new Promise(done => setTimeout(done, 100));
    const run = current(), {time, step, epoch} = run.curves;
    return state.runs.length === seen.runs.size && run.number === theirs.number && theirs.points.length > 0 && run.began === theirs.began
    && step.length >= theirs.points.length
    && theirs.points.every((p, k) => p[0] - run.began === time[k] && p[1] === step[k] && p[2] === epoch[k]); })()"

# Which charts there are, and what each draws, as JSON.
charts_shown="JSON.stringify([...document.querySelectorAll('#charts figure')].map(f => [f.dataset.metric, ...charts.get(f.dataset.metric).series
    .map(s => s.metric.name)]))"

each_metric_has_one_chart_with_training_and_validation_together() {
    train --set 'callbacks=[{"name": "lr_monitor"}, {"name": "device_stats_monitor"}]'
    screen 1280 1000 light
    open_page "$url"
    shows "a validation is there" "charts.has('acc') && charts.get('acc').series.length > 1"
    js "return $charts_shown"
    local shown=${out//\\/}
    like "$shown" '^\[\["loss","train_loss",.*"val_loss"\],\["acc","train_acc",.*"val_acc"\],' \
        "accuracy stands next to loss, each with training and validation"
    like "$shown" '\["memory_rss_mb","memory_rss_mb"\]' "megabytes have a chart of their own"
    like "$shown" '\["samples_per_second","samples_per_second"\]' "so have samples a second"
    js "const names = $charts_shown.match(/[a-z0-9_-]+/g), all = [...charts.values()].flatMap(c => c.series.map(s => s.metric.name));
        return new Set(all).size === all.length && [...current().curves.metrics].every(([n, m]) => !m.y.length || all.includes(n))"
    is "$out" true "each metric is in one chart, once"
    js "return [...charts.values()].every(c => c.series.length && c.series.every(s => s.y.length) && new Set(c.series.map(s => s.colour)).size
        === c.series.length && new Set(c.series.map(s => s.label)).size === c.series.length)"
    is "$out" true "no chart is empty, and none has a colour or a name twice"
    shows "units and names are words" "/Throughput *samples.s/.test(charts.get('samples_per_second').figure.textContent)
        && /Memory in use *MB/.test(charts.get('memory_rss_mb').figure.textContent)"
    js "const box = document.getElementById('charts').getBoundingClientRect(); return innerWidth - box.width < 60"
    is "$out" true "charts take the width of the window"
    screen 1920 1000 light
    js "const box = document.getElementById('charts').getBoundingClientRect(); return innerWidth - box.width < 60"
    is "$out" true "of a wide one, too"
    shot charts
    nothing_to_complain_of
    stop
}

matrices_and_curves_are_drawn() {
    points
    sed 's/,0$/,cat/; s/,1$/,dog/; s/,2$/,a bird with a long name/' points.csv >named.csv
    train --set data.path=named.csv --set 'module.metrics=["acc", "f1 classes", "confusion", "roc", "pr_curve micro"]'
    screen 1280 1000 light
    open_page "$url"
    shows "there are matrices and curves of training and validation" \
        "document.querySelectorAll('#drawings table.matrix').length === 2 && document.querySelectorAll('#drawings svg.curve').length === 4"
    js "return [...document.querySelectorAll('#drawings figure')].map(f => f.dataset.metric).join(' ')"
    is "$out" "train_confusion val_confusion train_pr_curve_micro val_pr_curve_micro train_roc val_roc" "each once"
    js "return [...document.querySelectorAll('#drawings table.matrix')][1].tHead.textContent"
    is "$out" "a bird with a long namecatdog" "a matrix has the names of the classes"
    shows "its counts are those of all samples of the validation" "[...document.querySelectorAll('#drawings figure[data-metric=val_confusion] td')]
        .reduce((sum, td) => sum + Number(td.textContent), 0) === 60"
    shows "its cells are shaded by their share" "new Set([...document.querySelectorAll('#drawings td.right, #drawings td.wrong')]
        .map(td => getComputedStyle(td).backgroundColor)).size > 1"
    shows "a curve of each class goes from corner to corner" "[...document.querySelectorAll('#drawings figure[data-metric=val_roc] polyline')]
        .filter(line => line.getAttribute('points').startsWith('40.0,308.0') && line.getAttribute('points').endsWith('340.0,8.0')).length === 3"
    js "window.had = document.getElementById('drawings').dataset.key; return 1"
    shows "they change while the run trains" "document.getElementById('drawings').dataset.key !== window.had"
    shot drawings
    for scheme in light dark; do
        screen 360 844 $scheme
        shows "no scrolling sideways on a phone, $scheme" "document.documentElement.scrollWidth <= 360"
        js "$contrast return poor.map(e => e.tagName + ' ' + e.className + ': ' + e.textContent).join('; ')"
        is "$out" "" "all text stands out from what is behind it"
        shot "drawings-phone-$scheme" $scheme
    done
    screen 1280 1000 light
    nothing_to_complain_of
    stop
}

# drag - by the mouse, over the middle half of the loss
drag() {
    js "const box = charts.get('loss').graph.graphDiv.getBoundingClientRect(); return [box.left + box.width * 0.4, box.left + box.width * 0.8,
        box.top + box.height / 2].map(Math.round).join(' ')"
    local from to y
    read -r from to y <<<"$out"
    driver POST "$session/actions" '{"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [
        {"type": "pointerMove", "x": '"$from"', "y": '"$y"'}, {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "duration": 200, "x": '"$to"', "y": '"$y"'}, {"type": "pointerUp", "button": 0}]}]}'
}

a_zoom_stays_while_points_come() {
    train
    screen 1280 1000 light
    open_page "$url"
    shows "there are points to zoom into" "charts.has('lr') || current() && current().curves.step.length > 20"
    js "document.getElementById('charts-tools').scrollIntoView()"
    drag
    shows "a drag zooms" "view.window !== null"
    js "window.zoomed = JSON.stringify(view.window.map(Math.round)); window.had = current().curves.step.length; return window.zoomed"
    shows "points come" "current().curves.step.length > window.had + 10"
    js "return [...charts.values()].every(c => JSON.stringify(c.graph.xAxisRange().map(Math.round)) === window.zoomed)"
    is "$out" true "and all charts still show that stretch"
    click zoom-in
    shows "a button zooms further" "view.window[1] - view.window[0] < JSON.parse(window.zoomed)[1] - JSON.parse(window.zoomed)[0]"
    click zoom-reset
    shows "another shows all" "view.window === null && charts.get('loss').graph.xAxisRange()[1] >= current().curves.step.at(-1)"
    js "const axis = document.getElementById('axis'); axis.value = 'epoch'; axis.dispatchEvent(new Event('change'))"
    shows "the x axis shows epochs" "charts.get('loss').graph.xAxisRange()[1] < current().epoch + 3"
    js "const smooth = document.getElementById('smooth'); smooth.value = 5; smooth.dispatchEvent(new Event('input'))"
    shows "values are smoothed" "charts.get('loss').graph.numColumns() > charts.get('loss').series.length + 1
        && /mean of 20 points/.test(document.getElementById('smooth-text').textContent)"
    js "window.had = current().curves.step.length"
    shows "points come" "current().curves.step.length > window.had + 10"
    js "return view.axis + view.smooth + document.getElementById('axis').value"
    is "$out" "epoch20epoch" "and the settings are as they were"
    js "return placeText(2) + '; ' + placeText(2.25)"
    is "$out" "end of epoch 2; epoch 3, 25 %" "epochs count from 1"
    nothing_to_complain_of
    stop
}

runs_of_a_sweep_are_labelled_by_what_differs_and_compared() {
    train --set optimizer.lr=1e-3,1e-2 --set trainer.max_epochs=30 --set trainer.limit_train_batches=4
    screen 1280 1000 light
    open_page "$url"
    wait "$fit"
    shows "each run has a tab" "document.querySelectorAll('#runs button').length === 2"
    shows "both runs have ended" "allRuns().every(run => run.ended) && !/training|validating/.test(document.getElementById('runs').textContent)"
    js "return [...document.querySelectorAll('#runs button')].map(b => b.textContent).join('; ')"
    is "$out" "lr=0.01 · done; lr=1e-3 · done" "which says what differs"
    js "document.querySelectorAll('#runs button')[1].click(); return current().number"
    is "$out" 1 "and shows the run"
    click compares
    shows "both are drawn in one chart" "new Set(charts.get('loss').series.map(s => s.run.number)).size === 2"
    js "return charts.get('grad_norm').series.map(s => s.label).join('; ')"
    is "$out" "lr=1e-3; lr=0.01" "by the same labels"
    shot sweep
    mkdir -p down
    devtools Browser.setDownloadBehavior '{"behavior": "allow", "downloadPath": "'"$PWD/down"'"}'
    click csv-loss
    ok "the points of a chart come as a file" holds 20 test -s down/runs-loss.csv
    is "$(head -n 1 down/runs-loss.csv)" "run,step,epochs_done,seconds,train_loss,train_loss_epoch,val_loss" "with names above"
    is "$(cut -d, -f1 down/runs-loss.csv | sort -u | wc -l)" 3 "of both runs"
    js "return shownRuns(current()).reduce((n, r) => n + new Set(['train_loss', 'train_loss_epoch', 'val_loss'].flatMap(m =>
        r.curves.metrics.get(m).at.map(at => r.curves.step[at]))).size, 0)"
    is "$(lines "$(cat down/runs-loss.csv)")" $((out + 1)) "a line for each step"
    like "$(tail -n 1 down/runs-loss.csv)" '^[0-9]+,120,30,[0-9.]+,' "up to the last"
}

# Points as the server sends them, into a page whose server has ended: steps that a metric was reported at.
inject="const inject = count => { const points = []; for (let k = 0; k < count; k++) points.push([k * 0.1, k + 1, (k + 1) / 1000, 100, 10, 0.01, 0.02,
    2 / (1 + k / 5000) + Math.sin(k) * 0.1, k % 1000 ? null : 2.1 / (1 + k / 5000)]);
    const run = {...[...seen.runs.values()][0], number: 1, whole: true, began: 0, points, strip: [], saves: [], reports_per_point: 1,
    columns: ['samples_per_second', 'steps_per_second', 'step_seconds_p50', 'step_seconds_p95', 'train_loss', 'val_loss'].map(name =>
    ({name, newest: 1}))}; delete run.curves; take({...seen.last, since: 0, log: [], more: false, runs: [run]}); show(); };"

one_point_two_and_a_hundred_thousand_are_drawn() {
    train
    open_page "$url"
    shows "there is a run" "current() && current().step > 0"
    stop
    shows "it has ended" "current().ended"
    for count in 1 2 100000; do
        screen 1280 1000 light
        js "$inject const began = performance.now(); inject($count); return Math.round(performance.now() - began)"
        ok "$count points are drawn in bounded time: $out ms" test "$out" -lt 5000
        is "$(js "return charts.get('loss').series[0].y.length"; echo "$out")" $count "all of them are there"
        js "$drawn return plotted('loss') && charts.get('loss').file.length <= 5000 && charts.get('loss').file.length >= Math.min($count, 200)"
        is "$out" true "as many as the chart has pixels for are drawn"
        shot "points-$count"
        screen 390 844 dark
        js "return document.documentElement.scrollWidth <= 390"
        is "$out" true "without scrolling sideways on a phone"
        shot "points-$count-phone" dark
    done
    screen 1280 1000 light
    js "const began = performance.now(); for (let k = 0; k < 5; k++) zoomBy(0.25, 0); return Math.round(performance.now() - began)"
    ok "five zooms take bounded time: $out ms" test "$out" -lt 5000
    js "const [from, to] = view.window; return charts.get('loss').file.filter(row => row[0] >= from && row[0] <= to && row[1] !== null).length
        >= Math.floor(to) - Math.ceil(from)"
    is "$out" true "and show each point that is kept"
    complaints
    is "$(grep -v '/events ' <<<"$out")" "" "the browser misses the server alone"
}

without_dygraphs_the_page_says_what_to_install() {
    train
    devtools Network.enable '{}'
    devtools Network.setBlockedURLs '{"urls": ["*/dygraph.js"]}'
    open_page "$url"
    shows "the metrics are there" "/train_loss/.test(document.getElementById('metrics').textContent)"
    shows "and what the charts need" "/apt-get install libjs-dygraphs/.test(document.getElementById('notice').textContent)"
    devtools Network.setBlockedURLs '{"urls": []}'
    complaints
    stop
}

says_lost="document.getElementById('link').dataset.state !== 'live'"

names_of_markup_are_text() {
    train --set trainer.run_name='<img src=x onerror=window.hacked=1><script>window.hacked=1<\script>"&amp;'
    open_page "$url"
    shows "it has the run" "current() && current().curves.step.length > 2"
    shows "its name is shown as it is" "document.body.innerText.includes('<img src=x onerror=window.hacked=1>')"
    shows "and nothing of the page" "document.querySelectorAll('[onerror], body script').length === 0"
    shows "nor anything that was run" "window.hacked === undefined"
    shows "nor too wide" "document.documentElement.scrollWidth <= innerWidth"
    nothing_to_complain_of
    stop
}

the_page_finds_the_next_server_at_the_same_address() {
    export PACELINE_DASHBOARD_TOKEN_FILE=$folder/token
    train
    open_page "$url"
    shows "it has points" "current() && current().curves.step.length > 2"
    js "window.first = seen.runs.get(1).began; window.boot = seen.last.wall"
    stop
    shows "it says that the server is gone" "$says_lost"
    ok "the run has ended there" page_has "current().ended && current().doing === 'stopped'"
    shot lost
    at=$port train
    shows "and is live again" "document.getElementById('link').dataset.state === 'live'"
    shows "with the figures of the next run alone" "window.boot !== seen.last.wall && current().curves.step.length > 2"
    shows "all of them" "$as_the_server"
    stop
    unset PACELINE_DASHBOARD_TOKEN_FILE
}

the_page_continues_after_a_lost_connection() {
    train
    start_nginx
    open_page "$behind/?token=$token"
    shows "behind a proxy it has points" "current() && current().curves.step.length > 2"
    stop_nginx
    shows "when the proxy is gone it says so" "$says_lost"
    shows "and that no button does anything" "document.getElementById('do-pause').ariaDisabled === 'true'"
    js "window.had = current().curves.step.length"
    run_continues
    nginx_again
    shows "it is live again" "document.getElementById('link').dataset.state === 'live'"
    shows "and has the steps of that time" "current().curves.step.length > window.had"
    shows "all of it, once" "$as_the_server"
    click do-pause
    shows "buttons work there" "document.getElementById('doing').textContent === 'paused'"
    stop_nginx
    stop
}

start_browser
run every_panel_is_filled_while_a_run_trains trains
run each_metric_has_one_chart_with_training_and_validation_together trains
run matrices_and_curves_are_drawn trains
run a_zoom_stays_while_points_come trains
run runs_of_a_sweep_are_labelled_by_what_differs_and_compared trains
run one_point_two_and_a_hundred_thousand_are_drawn trains
run without_dygraphs_the_page_says_what_to_install trains
run the_only_rank_has_stages_and_no_strip trains
run a_rank_that_is_silent_is_named trains
run buttons_take_the_mouse trains
run buttons_take_the_keyboard_alone trains
run the_page_is_readable_on_a_phone_and_in_the_dark trains
run names_of_markup_are_text trains
run the_page_finds_the_next_server_at_the_same_address trains
run the_page_continues_after_a_lost_connection trains
stop_browser
done_testing

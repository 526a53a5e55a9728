#!/usr/bin/env bash
# init.t - tests of the command: run files for data without a description
. "$(dirname "$0")/tap.sh"

# Passengers, most women among them survive; 200 rows with empty cells.
put_passengers() {
    awk 'BEGIN {
        srand(7)
        print "PassengerId,Survived,Name,Sex,Age,Embarked,Ship"
        for (i = 1; i <= 200; i++) {
            sex = rand() < 0.5 ? "female" : "male"
            alive = rand() < (sex == "female" ? 0.98 : 0.02) ? "yes" : "no"
            printf "%d,%s,\"Doe, %d\",%s,%s,%s,A\n", i, alive, i, sex, \
                   rand() < 0.2 ? "" : int(60 * rand()), substr("SCQ", 1 + int(3 * rand()), 1)
        }
    }' >passengers.csv
}

a_table_gets_a_run_file_with_reasons() {
    put_passengers
    try "$paceline" init passengers.csv
    is "$status" 0 "init succeeds"
    like "$out" 'A table of 200 rows and 7 columns with , between fields, with a header' "the table is described"
    like "$out" 'The target is "Survived"' "the target is named"
    like "$out" '"PassengerId" is left out: it numbers the rows' "a number of each row has no use"
    like "$out" '"Name" is left out: it has free texts' "nor have free texts"
    like "$out" '"Ship" is left out: it has one value' "nor has a constant"
    like "$(<passengers.json)" '^    // The target is "Survived"' "the reasons are comments"
    like "$(<passengers.json)" '"ignore": "PassengerId,Name,Ship"' "the columns are left out"
    try "$paceline" fit passengers.json --print-config
    is "$status" 0 "the run file is valid"
    try "$paceline" init passengers.csv
    is "$status" 2 "an existing file stays"
    like "$err" 'passengers.json exists' "which the error says"
}

fit_learns_from_a_table_alone() {
    rm -f passengers.json
    put_passengers
    try "$paceline" fit passengers.csv --set trainer.max_epochs=8
    is "$status" 0 "fit succeeds"
    ok "most are classified" at_least "$(metric val_acc)" 0.85
    try "$paceline" fit passengers.json --set trainer.max_epochs=40 --set data.categories=index
    ok "with embeddings of categories, too" at_least "$(metric val_acc)" 0.85
    try "$paceline" predict passengers.json --set data.categories=index --checkpoint runs/latest
    is "$(sort -u <<<"$out" | tr '\n' ' ')" "no yes " "predictions are the names of the classes"
    try "$paceline" fit passengers.csv --set trainer.max_steps=1
    like "$err" 'passengers.json exists' "the next fit takes the run file"
}

values_are_predicted_in_their_unit() {
    awk 'BEGIN { srand(3); print "rooms;price"; for (i = 0; i < 300; i++) { r = rand(); s = 3000 + 500 * r
                 sub(/\./, ",", r); printf "%s;%d,5\n", r, s } }' >prices.csv
    try "$paceline" init prices.csv --output p.json
    like "$out" 'so they are values' "prices are values"
    try "$paceline" fit p.json --set trainer.max_epochs=20
    is "$status" 0 "fit succeeds"
    try "$paceline" predict p.json --checkpoint runs/latest
    ok "the first price is near 3000 to 3500" at_least "$(head -n 1 <<<"$out")" 2900
}

a_folder_of_json_lines_is_texts_or_a_table() {
    mkdir shards
    for part in 1 2; do
        awk -v p=$part 'BEGIN { for (i = 0; i < 30; i++) { t = ""; for (k = 0; k < 40; k++) t = t "word" i p " "
                       printf "{\"body\": \"%s\", \"id\": %d}\n", t, i + 100 * p } }' >shards/$part.jsonl
    done
    try "$paceline" init shards
    is "$status" 0 "long texts are: $err"
    like "$(<shards.json)" '"field": "body"' "by their field"
    try "$paceline" fit shards.json --set trainer.max_steps=2 --set module.width=32 --set module.layers=1
    is "$status" 0 "which trains: $err"
    rm -rf shards.json runs
    echo 'about these files' >shards/README
    try "$paceline" init shards
    like "$err" 'shards has JSON Lines, such as shards/1.jsonl, and other texts, such as shards/README: keep one' "not with other texts"
    rm shards/README
    for part in 1 2; do
        awk -v p=$part 'BEGIN { for (i = 0; i < 60; i++)
                       printf "{\"size\": %d, \"kind\": \"%s\"}\n", i, (i > 30 ? "large" : "small") }' >shards/$part.jsonl
    done
    try "$paceline" init shards
    is "$status" 0 "those with something to predict are one table: $err"
    like "$out" 'JSON Lines in 2 files: 120 objects with 2 fields' "of all files"
    try "$paceline" fit shards.json --set trainer.max_epochs=20
    ok "fit learns from it: $err" at_least "$(metric val_acc)" 0.9
    try "$paceline" predict shards.json --checkpoint runs/latest
    is "$(grep -c . <<<"$out")" 120 "and predicts all rows"
    rm -rf runs
    gzip shards/1.jsonl
    head -c 9 /dev/zero >shards/blank
    try "$paceline" fit shards.json --set trainer.max_epochs=1
    like "$err" '1 file left out of the table, such as shards/blank' "what is no text is named: $err"
    try "$paceline" predict shards.json --checkpoint runs/latest
    is "$(grep -c . <<<"$out")" 120 "compressed files count"
    gunzip shards/1.jsonl.gz
    mv shards/blank shards/notes
    echo notes >shards/notes
    try "$paceline" fit shards.json
    like "$err" 'shards has JSON Lines, such as shards/1.jsonl, and other texts, such as shards/notes: keep one' "other texts are refused"
    rm -rf shards/notes runs
    echo '{"size": 1e300, "kind": "large"}' >>shards/2.jsonl
    try "$paceline" fit shards.json
    like "$err" 'shards:2.jsonl:61: field 1 is 1e\+300, too large for float32' "a wrong cell is named with its file"
    echo '{"size": 3, "kind"}' >shards/2.jsonl
    try "$paceline" fit shards.json
    like "$err" 'shards/2.jsonl:1:[0-9]+: ' "and a wrong line"
    mkdir shards/train shards/test
    mv shards/1.jsonl shards/train
    mv shards/train/1.jsonl shards/train/a.jsonl
    head -n 7 shards/train/a.jsonl >shards/test/b.jsonl
    rm shards/2.jsonl
    try "$paceline" fit shards.json --set trainer.max_epochs=2
    is "$status" 0 "with folders train and test the first is for training: $err"
    try "$paceline" test shards.json --checkpoint runs/latest
    is "$status" 0 "the other for paceline test: $err"
    rm -rf shards shards.json runs
}

json_lines_are_a_table_too() {
    awk 'BEGIN { srand(5); for (i = 0; i < 200; i++) { a = rand(); b = rand()
                 printf "{\"size\": [%g, %g], \"kind\": \"%s\"}\n", a, b, (a > b ? "wide" : "high") } }' >shapes.jsonl
    try "$paceline" fit shapes.jsonl --set trainer.max_epochs=1
    is "$status" 0 "fit takes them, too: $err"
    rm -rf shapes.json runs
    try "$paceline" init shapes.jsonl
    like "$out" 'JSON Lines: 200 objects with 3 fields' "the file is described"
    try "$paceline" fit shapes.json --set trainer.max_epochs=20
    ok "fit learns from it" at_least "$(metric val_acc)" 0.85
    try "$paceline" predict shapes.json --checkpoint runs/latest
    is "$(sort -u <<<"$out" | tr '\n' ' ')" "high wide " "predictions are the names of the classes"
}

# Messages of ten words, most of which say nothing; two say which kind each is.
messages_are_learnt_by_their_words() {
    awk 'BEGIN { srand(5); print "text\tkind"
                 for (i = 0; i < 240; i++) {
                     spam = rand() < 0.4; text = ""
                     for (k = 0; k < 8; k++) text = text " word" int(5000 * rand())
                     printf "%s%s\t%s\n", spam ? "free prize" : "see you", text, spam ? "spam" : "ham" } }' >mail.tsv
    try "$paceline" init mail.tsv
    like "$out" '1 column of sentences: the most frequent words' "words are features"
    like "$(<mail.json)" '"texts": "words"' "so says the run file"
    try "$paceline" fit mail.tsv --set trainer.max_epochs=12
    is "$status" 0 "fit succeeds"
    ok "nearly all are classified" at_least "$(metric val_acc)" 0.95
    like "$("$paceline" inspect runs/latest)" 'best' "the run stands for its best weights"
    printf 'id\ttext\n1\tA FREE, free prize for a stranger\n2\tsee you at home\n' >more.tsv
    try "$paceline" predict mail.json --set data.path=more.tsv --checkpoint runs/latest
    is "$out" $'spam\nham' "other messages are classified by the same words"
}

arrays_of_numpy_get_a_run_file() {
    cp "$srcdir/t/data/shapes.npz" points.npz
    try "$paceline" init points.npz
    like "$out" 'Arrays of NumPy with 100 samples' "an archive is described"
    like "$(<points.json)" '"y": "points.npz:y"' "its target is found"
    try "$paceline" fit points.json --set trainer.max_epochs=30
    ok "fit learns from it" at_least "$(metric val_acc)" 0.8
    try "$paceline" init points.npz --target z --output z.json
    is "$status" 2 "an array that is not there"
    like "$err" 'points.npz: there is no array "z"; there are x, y' "is named"
    cp "$srcdir/t/data/numpy.npy" x.npy
    try "$paceline" init x.npy
    is "$status" 2 "a file without targets"
    like "$err" 'npy: No such file' "the missing file is named"
}

the_target_can_be_chosen() {
    put_passengers
    try "$paceline" init passengers.csv --target Sex --output sex.json
    is "$status" 0 "by its name"
    like "$(<sex.json)" '"y": "Sex"' "it is the target"
    try "$paceline" init passengers.csv --target Name --output name.json
    is "$status" 2 "not a text that names each row"
    like "$err" 'cannot be the target: it has too many different texts' "which the error says"
    try "$paceline" init passengers.csv --target Nam --output name.json
    is "$status" 2 "nor a column that is not there"
    ok "no file is written" test ! -e name.json
}

what_is_no_data_is_refused() {
    try "$paceline" init missing.csv
    is "$status" 2 "no such file"
    mkdir -p empty
    try "$paceline" init empty
    is "$status" 2 "a folder without known files"
    like "$err" 'empty has no folders: put the pictures of each class' "which the error says"
}

embeddings_take_the_categories_of_the_data() {
    put_passengers
    try "$paceline" init passengers.csv --output e.json
    try "$paceline" fit e.json --set data.categories=index --set trainer.max_steps=1
    try "$paceline" inspect runs/latest/model.safetensors
    like "$out" 'categories.weight +float32 +7x8' "two sexes, three harbours, and others of both columns"
}

# Two classes of 20 small pictures.
put_pictures() {
    mkdir -p toys/blue toys/red
    for k in {1..20}; do
        cp "$srcdir/t/corpus/pictures/small.png" "toys/blue/$k.png"
        cp "$srcdir/t/corpus/pictures/red.png" "toys/red/$k.png"
    done
}

a_folder_of_pictures_gets_a_network() {
    put_pictures
    try "$paceline" init toys
    [[ $err != *'is not installed'* ]] || { skip "libspng is not installed"; return; }
    is "$status" 0 "init succeeds"
    like "$out" '40 pictures of 2 classes, which are folders' "the folder is described"
    like "$(<toys.json)" '"stages": ."random_crop 8 padding=1", "flip", "normalize half"' "with stages"
    like "$(<toys.json)" '"residual": ."conv 32 3 same"' "and a network"
    try "$paceline" fit toys --set trainer.max_epochs=25
    is "$status" 0 "fit trains"
    ok "it tells the classes apart" at_least "$(metric val_acc)" 0.9
    try "$paceline" predict toys.json --checkpoint runs/latest
    is "$(cut -f 2 <<<"$out" | sort | uniq -c | tr -s ' \n' ' ')" " 20 blue 20 red " "predictions are the names of the folders"
    is "$(grep -cP '^toys/(blue|red)/[0-9]+\.png\t\1$' <<<"$out")" 40 "each with its file: $(head -n 1 <<<"$out")"
    try "$paceline" predict toys.json --checkpoint runs/latest --json
    like "$out" '"sample": *0, *"file": *"toys/blue/1.png", *"class": *0' "also in JSON"
    mkdir -p toys/val toys/train && mv toys/blue toys/red toys/train && cp -r toys/train/. toys/val
    try "$paceline" init toys --output parts.json
    like "$(<parts.json)" '"val": .*"path": "toys/val"' "a folder for validation is used"
    try "$paceline" fit parts.json --set trainer.max_epochs=1
    is "$status" 0 "and its run file trains"
    mv toys/val toys/test
    try "$paceline" init toys --output tested.json
    like "$(<tested.json)" '"val_split": 0.2' "a folder of tests is not for validation"
    try "$paceline" fit tested.json --set trainer.max_epochs=1
    try "$paceline" test tested.json --checkpoint runs/latest
    is "$status" 0 "but for a test"
    cp -r toys/test toys/val
    try "$paceline" init toys --output three.json
    like "$(<three.json)" '"test": .*"path": "toys/test"' "with three folders each has its part"
    try "$paceline" test three.json --checkpoint runs/latest
    is "$status" 0 "of a test, too"
}

# A WAV file of 0.25 s with a tone: put_tone FILE HERTZ.
put_tone() {
    mkdir -p "${1%/*}"
    printf '%b' "$(awk -v hertz="$2" 'function put(value, size) { for (; size--; value = int(value / 256))
                                          printf "\\x%02x", value % 256 }
        BEGIN { printf "RIFF"; put(2036, 4); printf "WAVEfmt "; put(16, 4); put(65537, 4); put(8000, 4); put(8000, 4)
                put(524289, 4); printf "data"; put(2000, 4)
                for (k = 0; k < 2000; k++) put(128 + int(90 * sin(6.2831853 * hertz * k / 8000)), 1) }')" >"$1"
}

a_folder_of_recordings_gets_a_network_that_tells_tones_apart() {
    for k in {1..16}; do
        put_tone "tones/low/$k.wav" "$((500 + 5 * k))"
        put_tone "tones/high/$k.wav" "$((700 + 5 * k))"
    done
    try "$paceline" init tones
    [[ $err != *'is not installed'* ]] || { skip "libsndfile is not installed"; return; }
    is "$status" 0 "init succeeds: $err"
    like "$out" '32 recordings of 2 classes, which are folders' "the folder is described"
    like "$out" 'recordings have up to 8000 frames per second; 8000 are used' "with their rate"
    like "$(<tones.json)" '"seconds": 0.25' "the length is theirs"
    try "$paceline" fit tones --set trainer.max_epochs=12
    is "$status" 0 "fit succeeds: $err"
    ok "all tones of the validation are classified" at_least "$(metric val_acc)" 1.0
    printf 'RIFF' >tones/low/3.wav
    try "$paceline" init tones --output errors.json
    like "$out" 'Of 32 recordings 1 cannot be read: such are named' "a damaged recording is seen"
    try "$paceline" fit errors.json --set trainer.max_epochs=1
    is "$status" 0 "the run file skips it"
    like "$err" 'tones/low/3.wav: it cannot be read as a recording.*it is skipped .1 skipped so far' "and names it"
    try "$paceline" fit errors.json --set data.damaged=error --set trainer.max_epochs=1
    ok "without that it is an error" test "$status" != 0
    like "$err" 'tones/low/3.wav: it cannot be read as a recording' "which names it, too"
}

a_folder_of_classes_of_texts_is_learnt_by_words() {
    for k in {1..40}; do
        mkdir -p mails/ham mails/spam
        echo "see you at the station, number $((k * 37 % 101))" >"mails/ham/$k.txt"
        echo "free prize for a stranger, number $((k * 53 % 101))" >"mails/spam/$k"
    done
    echo 'two classes' >mails/README
    try "$paceline" init mails
    is "$status" 0 "init succeeds: $err"
    like "$out" '80 texts of 2 classes, which are folders' "the folder is described"
    like "$(<mails.json)" '"texts": "words"' "words are features"
    try "$paceline" fit mails --set trainer.max_epochs=12
    is "$status" 0 "fit succeeds: $err"
    ok "the classes are learnt" at_least "$(metric val_acc)" 0.95
    mkdir -p new
    echo 'a free prize' >new/1.txt
    echo 'you see' >new/2.txt
    printf 'a\0b' >new/3.bin
    try "$paceline" predict mails.json --set data.path=new --checkpoint runs/latest
    is "$out" $'spam\nham' "predictions need no folders of classes, and leave out what is no text: $err"
    rm mails/spam/*
    try "$paceline" fit mails.json
    like "$err" 'mails/spam: there is no text of this class' "a class without texts is an error"
}

# A language model of a few characters, which trains in a moment.
tiny='--set module.width=16 --set module.layers=1 --set module.heads=1 --set data.context=8 --set trainer.max_steps=3'

texts_without_classes_are_a_language_model() {
    mkdir -p book/part
    for k in 1 2 3; do
        printf 'It was a dark and stormy night %s.\n%.0s' {1..20} >"book/$k.md"
        printf 'The rain fell in torrents.\n%.0s' {1..20} >"book/part/$k.md"
    done
    try "$paceline" init book
    like "$out" 'A folder of texts without classes: each character is a token' "the folder is described: $err"
    like "$out" 'Between two texts stands a token of its own' "with its separator"
    try "$paceline" fit book.json $tiny
    is "$status" 0 "fit succeeds: $err"
    awk 'BEGIN { for (i = 0; i < 30; i++) { printf "{\"id\": %d, \"body\": \"", i
                 for (k = 0; k < 40; k++) printf "word %d ", i; print "\"}" } }' >wiki.jsonl
    try "$paceline" init wiki.jsonl
    like "$out" 'a long text in the field "body", and nothing beside it to predict' "a long text of JSON Lines, too: $err"
    like "$(<wiki.json)" '"field": "body"' "its field is found"
    try "$paceline" fit wiki.json $tiny
    is "$status" 0 "fit succeeds: $err"
    sed 's/"id": [0-9]*\([0-9]\)/"stars": \1/' wiki.jsonl >rated.jsonl
    try "$paceline" init rated.jsonl
    like "$out" 'JSON Lines: 30 objects with 2 fields' "a text with a rating is a table"
}

single_texts_and_folders_of_them_are_language_models() {
    mkdir letters
    printf 'Dear reader, all is well here.\n%.0s' {1..40} | tee letters/1.txt letters/2.txt >letter.txt
    try "$paceline" init letter.txt
    is "$status" 0 "one text gets a run file: $err"
    like "$out" 'A text: each character is a token' "it is described"
    ok "without a separator" test "$(grep -c 'Between two texts' <<<"$out")" = 0
    try "$paceline" fit letter.json $tiny
    is "$status" 0 "it trains: $err"
    try "$paceline" predict letter.json $tiny --checkpoint runs/latest --prompt Dear --tokens 5
    like "$out" "^Dear.{5}" "and continues a prompt: $err"
    try "$paceline" init letters
    like "$out" 'A folder of texts without classes: each character is a token' "a folder of texts, too: $err"
    try "$paceline" fit letters $tiny
    is "$status" 0 "fit takes its run file: $err"
}

tokens_in_a_file_are_a_language_model() {
    printf '\x07\x00\x02\x01\x0b\x00%.0s' {1..200} >tokens.bin
    try "$paceline" init tokens.bin
    is "$status" 0 "a run file is written: $err"
    like "$out" 'Tokens, as nanoGPT and llm.c write them' "the file is described"
    like "$(<tokens.json)" '"vocabulary": "numbers"' "the tokens are numbers"
    try "$paceline" fit tokens.json $tiny
    is "$status" 0 "it trains: $err"
    try "$paceline" inspect runs/latest/model.safetensors
    like "$out" ' +float32 +259x16' "with rows up to the largest token"
}

# put_digits PART IMAGES - files of MNIST, with images of 12x12 that are bright on the side of their class
put_digits() {
    printf '%b' "$(awk -v n="$2" 'BEGIN { printf "\\0\\0\\x8\\x3\\0\\0\\0\\x%x\\0\\0\\0\\xc\\0\\0\\0\\xc", n
        for (i = 0; i < 144 * n; i++) printf "\\x%x", (i % 12 > 5) == int(i / 144) % 2 ? 250 - i % 50 : i % 50 }')" \
        >"digits/$1-images-idx3-ubyte"
    printf '%b' "$(awk -v n="$2" 'BEGIN { printf "\\0\\0\\x8\\x1\\0\\0\\0\\x%x", n
        for (i = 0; i < n; i++) printf "\\x%x", i % 2 }')" >"digits/$1-labels-idx1-ubyte"
}

the_files_of_mnist_get_a_network() {
    mkdir digits
    put_digits train 100
    put_digits t10k 20
    try "$paceline" init digits
    is "$status" 0 "a run file is written: $err"
    like "$out" 'A folder with images and labels in the format of MNIST' "the folder is described"
    like "$(<digits.json)" '"name": "cnn"' "with a network"
    try "$paceline" fit digits.json --set trainer.max_epochs=2 --set data.batch_size=10
    is "$status" 0 "it trains: $err"
    try "$paceline" test digits.json --checkpoint runs/latest
    ok "the images of t10k have their classes: $out$err" at_least "$(metric test_acc)" 0.9
    gzip digits/*
    rm digits.json
    try "$paceline" fit digits --set trainer.max_steps=1
    is "$status" 0 "compressed files are found, too: $err"
}

a_resumed_run_sees_the_same_pictures() {
    put_pictures
    rm -f toys.json
    try "$paceline" init toys
    [[ $err != *'is not installed'* ]] || { skip "libspng is not installed"; return; }
    try "$paceline" fit toys.json --set 'scheduler={"name":"constant"}' --set trainer.max_epochs=4 --set trainer.run_name=whole
    is "$status" 0 "a run of four epochs"
    try "$paceline" fit toys.json --set 'scheduler={"name":"constant"}' --set trainer.max_epochs=2
    try "$paceline" fit toys.json --set 'scheduler={"name":"constant"}' --set trainer.max_epochs=4 --resume last
    is "$status" 0 "and one of two and two"
    run_dir=$(sed -n 's/^written to \([^:]*\):.*/\1/p' <<<"$out")
    ok "end with the same bits" cmp runs/whole/model.safetensors "$run_dir/model.safetensors"
}

a_missing_library_is_named() {
    put_pictures
    mkdir -p without
    : >without/libspng.so.0
    LD_LIBRARY_PATH=$PWD/without try "$paceline" init toys --output none.json
    is "$status" 2 "PNG without libspng is an error"
    like "$err" 'toys/.*png is a PNG picture, and libspng.so.0 is not installed: apt-get install libspng0' "with the package"
}

texts_of_few_words_are_used_where_there_is_nothing_else() {
    awk 'BEGIN { for (k = 0; k < 60; k++) printf "{\"text\": \"%s day %d\", \"label\": \"%s\"}\n",
        k % 2 ? "fine" : "awful", k, k % 2 ? "good" : "bad" }' >notes.jsonl
    try "$paceline" fit notes.jsonl --set trainer.max_epochs=30
    is "$status" 0 "a column of short texts and a label: $(tail -n 1 <<<"$err")"
    like "$(metric val_acc)" '^(1|0\.9)' "are learnt from: $(metric val_acc)"
}

a_poor_result_has_its_reason() {
    awk 'BEGIN { srand(4); print "a,b,y"; for (k = 0; k < 600; k++) print rand() "," rand() "," (rand() < 0.2 ? "rare" : "usual") }' >noise.csv
    try "$paceline" fit noise.csv
    like "$err" 'val_acc is 0.[0-9]+, but the most frequent class is 0.[78][0-9]* of the samples' "classes by chance"
    awk 'BEGIN { srand(4); print "a,b,y"; for (k = 0; k < 100; k++) print rand() "," rand() "," rand() }' >values.csv
    try "$paceline" fit values.csv --set trainer.max_epochs=3
    like "$err" 'val_r2 is .*: the predictions are (no|hardly) better than the mean of the targets' "values by chance"
    like "$err" 'the run had 9 steps: train longer' "after few steps"
    try "$paceline" fit values.json --set trainer.max_epochs=50 \
        --set 'callbacks=[{"name":"early_stopping","monitor":"val_loss","patience":1}]'
    like "$out" 'stopped after' "a run that stops early"
    is "$(grep -c 'train longer' <<<"$err")" 0 "is not to be longer: $err"
    put_passengers
    rm -f passengers.json
    try "$paceline" fit passengers.csv --set trainer.max_epochs=10
    is "$(grep -c 'better than' <<<"$err")" 0 "a good result needs none"
    rm -f passengers.json
}

texts_without_a_header_are_rows() {
    awk 'BEGIN { for (k = 0; k < 60; k++) printf "%s\tthe %s day of the year %d is over%s\n", k % 2 ? "good" : "bad",
        k % 2 ? "fine" : "awful", k, k % 3 ? " at last" : "" }' >days.tsv
    printf 'good\t645\n' >>days.tsv
    try "$paceline" init days.tsv
    like "$out" 'A table of 61 rows and 2 columns with tabs between fields, without a header' "all lines are rows, also with a number among texts"
    like "$(<days.json)" '"header": "no"' "so says the run file"
    sed -i '1s/.*/kind\tmessage/' days.tsv
    try "$paceline" init days.tsv --output with.json
    like "$out" 'A table of 60 rows .* with a header' "names are names"
    like "$(<with.json)" '"header": "yes"' "and the option is there to change"
}

names_that_are_years_are_names() {
    awk 'BEGIN { srand(6); print "2019,2020,2021"; for (k = 0; k < 60; k++) printf "%.3f,%.3f,%.3f\n", rand(), rand(), rand() }' >years.csv
    try "$paceline" init years.csv
    like "$out" 'A table of 60 rows and 3 columns with , between fields, with a header' "numbers that are years are names"
    like "$(<years.json)" '"y": "2021"' "of the target, too"
    awk 'BEGIN { for (k = 0; k < 60; k++) printf "%d,%d\n", 1990 + k % 20, 1991 + k % 20 }' >spans.csv
    try "$paceline" init spans.csv
    like "$out" 'A table of 60 rows and 2 columns .* without a header' "rows of years are rows"
}

what_predict_does_not_use_is_named() {
    put_passengers
    try "$paceline" init passengers.csv --output people.json
    try "$paceline" fit people.json --set trainer.max_epochs=2
    sed '1s/$/,Deck/; 2,$s/$/,B/; 5s/,[SCQ],A,B$/,X,A,B/' passengers.csv >later.csv
    try "$paceline" predict people.json --set data.path=later.csv --checkpoint runs/latest
    is "$status" 0 "a file with another column and another value is predicted"
    like "$err" '1 column is not used, which the training data did not use: "Deck"' "the column is named"
    like "$err" 'Embarked.: 1 cell with a value that is rare or unknown' "so is the value: $err"
    is "$(grep -c 'is not used' <<<"$err")" 1 "columns that the run file leaves out are not"
}

names_with_blanks_are_quoted() {
    put_passengers
    mv passengers.csv 'my people.csv'
    try "$paceline" init 'my people.csv'
    like "$out" "fit 'my people.json'" "the next command can be copied"
    printf '%s\n' y {1..60} | sed '2,$s/$/.5/' >one.csv
    try "$paceline" init one.csv
    like "$err" 'one.csv' "a table of one column is refused: $err"
}

# proposes TEXT PATTERN - for a table of that text init gives its reason, and the run as it is proposed ends well
proposes() {
    rm -f odd.csv odd.json
    printf '%b' "$1" >odd.csv
    try "$paceline" init odd.csv
    like "$out" "$2" "init says: $2"
    try "$paceline" fit odd.json
    is "$status" 0 "the run succeeds: $(tail -n 1 <<<"$err")"
}

# odd_rows TEXT - 40 rows with a target of two classes; the eighth has TEXT in the place of a number
odd_rows() {
    printf '%s' 'a,b,y\n'
    for k in {1..40}; do printf '%d,%s,%d\\n' $((k % 7)) "$([[ $k = 8 ]] && echo "$1" || echo "$((k % 9)).5")" $((k % 2)); done
}

cells_that_are_no_numbers_count_as_missing() {
    local odd
    for odd in inf -Infinity 1e300 unknown; do
        proposes "$(odd_rows "$odd")" "\"b\" has cells that are no numbers of float32, such as \"$odd\" in line 9: such cells count"
        like "$(<odd.json)" "\"missing_values\": .*,$odd\"" "the run file has the text"
    done
    proposes "$(odd_rows nan)" 'a usual name for one' "nan is a missing cell"
    proposes "a,y\n$(for k in {1..40}; do printf '%d,%s\\n' $((k % 7)) "$([[ $k = 8 ]] && echo 1e300 || echo $k.5)"; done)" \
        '"y" has cells that are no numbers' "also in the target"
    proposes "$(odd_rows '"x, y"')" '"b" has cells .*: it is left out' "a text that cannot be listed costs the column"
}

numbers_have_groups_of_three_digits() {
    proposes "area,price\n$(for k in {1..40}; do printf '%d,"%d,%03d"\\n' $((k % 7)) $((k + 1)) $k; done)" \
        'The target is "price"' "with commas"
    like "$out$(<odd.json)" '"target": "value"' "prices are values"
    proposes "area;price\n$(for k in {1..40}; do printf '%d;%d.%03d,5\\n' $((k % 7)) $((k + 1)) $k; done)" \
        'The target is "price"' "with points and a decimal comma"
    try "$paceline" predict odd.json --checkpoint runs/latest
    ok "in its unit: $(head -n 1 <<<"$out")" at_least "$(head -n 1 <<<"$out")" 2000
}

tables_of_few_rows_are_proposed_without_validation() {
    proposes 'a,b,y\n1,2,x\n2,3,z\n' '2 rows are too few to keep some for validation'
    proposes 'a,b,y\n1,2,1.5\n2,3,2.5\n' 'a usual name for one'
    proposes "a,y\n$(for k in {1..10}; do printf '%d,c%d\\n' $((k % 3)) $k; done)" 'The target is "y"'
    printf 'a,b,y\n1,2,x\n' >few.csv
    refused 2 'few.csv: 1 row is too few to learn from' init few.csv
    mkdir -p pair/a pair/b
    cp "$srcdir/t/corpus/pictures/small.png" pair/a
    cp "$srcdir/t/corpus/pictures/red.png" pair/b
    refused 2 'pair has 2 pictures, too few to learn from' init pair
}

epochs_follow_from_the_number_of_rows() {
    awk 'BEGIN { print "a,b,y"; for (k = 0; k < 16000; k++) print k * 7 % 13 "," k % 5 "," k * k % 1009 / 8 }' >many.csv
    try "$paceline" init many.csv
    like "$out" '100 steps of 128 rows are an epoch' "an epoch has steps"
    like "$(<many.json)" '"max_epochs": 80' "and a run 8000 of them"
    head -n 11 many.csv >ten.csv
    try "$paceline" init ten.csv
    like "$out" '1 step of 8 rows is an epoch' "or one"
    like "$(<ten.json)" '"max_epochs": 100' "in at most 100 epochs"
}

a_table_without_features_is_refused_with_the_reason() {
    printf '%s\n' y 0 1 0 1 0 1 >alone.csv
    refused 2 'alone.csv: no column is left from which "y" could be predicted: there is no other column' init alone.csv
    printf 'a,y\n,0\n,1\n,0\n' >alone.csv
    refused 2 'could be predicted: "a" has no values' init alone.csv
    refused 2 'the column "a" cannot be the target: it has no values' init alone.csv --target a
}

texts_that_are_not_utf_8_are_refused_with_the_way_to_convert() {
    printf 'size,city,y\n1,Bern,0\n2,Z\xfcrich,1\n' >latin.csv
    refused 2 'latin.csv:3:3: field 2 .city.: .* is not UTF-8: convert the file, such as by: iconv -f WINDOWS-1252 -t UTF-8' \
        init latin.csv
    printf 'gr\xf6sse,y\n1,0\n2,1\n' >latin.csv
    refused 2 'latin.csv: the name of column 1 is not UTF-8' init latin.csv
}

# The rows of the beginning, and a hole up to 600 MB.
a_large_table_stays_on_the_disk() {
    awk 'BEGIN { srand(1); print "a,b,city,y"; for (k = 0; k < 250000; k++) {
        a = rand(); b = rand(); printf "%.8f,%.8f,town of number %d,%.8f\n", a, b, k % 5, 3 * a - b + k % 5 } }' >large.csv
    head -n 20000 large.csv >part.csv
    truncate -s 600000000 large.csv
    try "$paceline" init large.csv
    is "$status" 0 "init succeeds: $err"
    like "$out" '^0.6 GB stay on the disk and are read in parts, in windows of 10000 rows' "it looks at the beginning"
    like "$out" 'A table of about 1[1-5][0-9]{6} rows and 4 columns' "and says how many rows there are"
    like "$(<large.json)" '"stream": true' "the run streams"
    try "$paceline" fit large.json --set data.path=part.csv --set trainer.max_epochs=4 --set data.val_split=0.1
    is "$status" 0 "its options go together: $err"
    ok "and it learns" at_least "$(metric val_r2)" 0.95
    awk 'BEGIN { srand(2); print "a,b,kind"; for (k = 0; k < 40000; k++) printf "%.8f,%.8f,cat\n", rand(), rand() }' >sorted.csv
    truncate -s 600000000 sorted.csv
    awk 'BEGIN { srand(3); print ""; for (k = 0; k < 60000; k++) printf "%.8f,%.8f,dog\n", rand(), rand() }' >>sorted.csv
    try "$paceline" init sorted.csv
    like "$out" 'It has 2 different texts, so they are classes' "classes at the end of a sorted file are seen"
    sed 's/town of/a town that has the long name/' part.csv | awk -F, 'NR > 1 { $3 = $3 " and " NR " words" } { print $1 FS $2 FS $3 FS $4 }' \
        OFS=, >sentences.csv
    truncate -s 600000000 sentences.csv
    try "$paceline" init sentences.csv
    like "$out" '"city" is left out: it has texts, whose words need all rows in memory' "columns of sentences are left out"
}

run cells_that_are_no_numbers_count_as_missing trains
run a_large_table_stays_on_the_disk trains
run numbers_have_groups_of_three_digits trains
run tables_of_few_rows_are_proposed_without_validation trains
run epochs_follow_from_the_number_of_rows
run a_table_without_features_is_refused_with_the_reason
run texts_that_are_not_utf_8_are_refused_with_the_way_to_convert
run names_that_are_years_are_names
run names_with_blanks_are_quoted
run what_predict_does_not_use_is_named trains
run a_poor_result_has_its_reason trains
run texts_without_a_header_are_rows
run a_table_gets_a_run_file_with_reasons
run fit_learns_from_a_table_alone trains
run values_are_predicted_in_their_unit trains
run arrays_of_numpy_get_a_run_file trains
run a_folder_of_json_lines_is_texts_or_a_table
run json_lines_are_a_table_too trains
run messages_are_learnt_by_their_words trains
run the_target_can_be_chosen
run embeddings_take_the_categories_of_the_data trains
run what_is_no_data_is_refused
run a_folder_of_pictures_gets_a_network trains
run a_folder_of_recordings_gets_a_network_that_tells_tones_apart trains
run a_folder_of_classes_of_texts_is_learnt_by_words trains
run texts_without_classes_are_a_language_model trains
run single_texts_and_folders_of_them_are_language_models trains
run tokens_in_a_file_are_a_language_model trains
run the_files_of_mnist_get_a_network trains
run a_resumed_run_sees_the_same_pictures trains
run a_missing_library_is_named
run texts_of_few_words_are_used_where_there_is_nothing_else trains
done_testing

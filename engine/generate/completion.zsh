
# Words of `paceline list --keys`, such as "trainer.precision=16-mixed": first the keys, then their values.
_paceline_keys() {
    local -a keys=(${(f)"$(paceline list --keys 2>/dev/null)"})
    local key
    if compset -P '*='; then
        key=$IPREFIX
        key=${key##*[[:space:]]}
        key=${key#--set=}
        compadd -- ${${(M)keys:#${key}?*}#$key}
    else
        compadd -S '' -- ${(u)keys/=*/=}
    fi
}

_paceline_roles() {
    compadd -- ${${(f)"$(paceline list 2>/dev/null)"}%% *} trainer data
}

_paceline() {
    if ((CURRENT == 2)); then
        _paceline_commands
        return
    fi
    shift words
    ((CURRENT--))
    _paceline_arguments $words[1]
}
_paceline "$@"

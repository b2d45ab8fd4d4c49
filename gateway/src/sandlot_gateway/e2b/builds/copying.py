"""The shell script that puts the files of a COPY step in their place, in the sandbox."""

from __future__ import annotations

# Arguments: archive, directory to unpack in, source, destination, owner, mode. Files replace files, directories
# merge with directories, which keep their own mode and owner if they were there. The sandbox unpacks, since the
# archive is as hostile as any command of its tenant.
SCRIPT = r"""
set -e
archive=$1 into=$2 source=$3 target=$4 owner=$5 mode=$6
trap 'rm -rf "$archive" "$into"' EXIT
command -v tar >/dev/null || { echo "COPY needs the program tar in the image" >&2; exit 1; }
mkdir -p "$into"
packed=
[ "$(head -c 2 "$archive" | od -An -tx1 | tr -d ' \n')" = 1f8b ] && packed=-z
tar -xo $packed -f "$archive" -C "$into"
found=$into/$source
if [ ! -e "$found" ] && [ ! -L "$found" ]; then
    echo "the archive has no $source" >&2
    exit 1
fi
case $owner in
    '' | *:*) ;;
    *) owner=$owner:$(id -g "$owner") ;;
esac
[ -z "$owner" ] || chown -hR "$owner" "$found"
if [ -d "$found" ] && [ ! -L "$found" ]; then
    [ -z "$mode" ] || chmod -R "$mode" "$found"
    if [ ! -e "$target" ]; then
        mkdir -p "$target"
        [ -z "$owner" ] || chown "$owner" "$target"
    fi
    keep=
    tar --version 2>/dev/null | grep -q GNU && keep='--keep-directory-symlink --no-overwrite-dir'
    (cd "$found" && tar -cf - .) | tar -xp $keep -f - -C "$target"
    exit
fi
[ -z "$mode" ] || [ -L "$found" ] || chmod "$mode" "$found"
case $target in
    */) mkdir -p "$target" ;;
    *) mkdir -p "$(dirname "$target")" ;;
esac
mv -f "$found" "$target"
"""

# Makes a user that a USER step names and the image lacks, as E2B does, and prints its home. Small images have no program
# for it.
USER_SCRIPT = r"""
set -e
name=$1
if ! id -u "$name" >/dev/null 2>&1; then
    if command -v useradd >/dev/null; then
        useradd -m -s /bin/sh "$name"
    elif command -v adduser >/dev/null; then
        adduser -D "$name" >&2
    else
        taken=:
        for file in /etc/passwd /etc/group; do
            [ ! -s "$file" ] || [ -z "$(tail -c 1 "$file")" ] || echo >>"$file"
            [ ! -s "$file" ] || while IFS=: read -r _ _ number _; do taken=$taken$number:; done <"$file"
        done
        number=1000
        while case $taken in *:$number:*) ;; *) false ;; esac; do number=$((number + 1)); done
        echo "$name:x:$number:" >>/etc/group
        echo "$name:x:$number:$number::/home/$name:/bin/sh" >>/etc/passwd
        mkdir -p "/home/$name"
        chown "$number:$number" "/home/$name"
    fi
fi
eval "printf %s ~$name"
"""

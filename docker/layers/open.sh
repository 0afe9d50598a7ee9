#!/bin/sh
# Layer open: berth's own smdistributed, a quarter of its code, below the code that changes more often.
set -eu
berth=$(echo /opt/berth/lib/python3*/site-packages)/berth

cd /tmp/smdistributed
find . -name '*.py' -exec install -D -m 0644 {} "$berth/smdistributed/{}" \;
/opt/berth/bin/python -B -m compileall -q --invalidation-mode checked-hash "$berth"
# On PATH this smddprun comes after that of AWS's wheel. It imports berth's implementation by its full name, because
# `import smdistributed` may find AWS's.
printf '#!/opt/berth/bin/python -I\nimport sys\n\nfrom %s import main\n\nsys.exit(main())\n' \
    berth.smdistributed.dataparallel.launch >/usr/local/bin/smddprun
chmod 0755 /usr/local/bin/smddprun
/opt/berth/bin/python -B -c 'import berth.smdistributed.dataparallel.launch'

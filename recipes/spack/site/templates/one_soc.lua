{# SPDX-License-Identifier: Apache-2.0 #}
{# Spack's own module file for Lmod, which refuses to be loaded beside the same for another SoC. #}
{% extends "modules/modulefile.lua" %}
{% block autoloads %}
-- Two SoCs at once would mix their operators. Lmod would replace the loaded one and go on, before
-- this file is read; LOADEDMODULES still says what the shell has.
if (mode() == "load") then
  local wanted = myModuleVersion():match("[^-]+$")
  for loaded in (os.getenv("LOADEDMODULES") or ""):gmatch("[^:]+") do
    local name, soc = loaded:match("^(.+)/.-([^-]+)$")
    if (name == myModuleName() and soc ~= wanted) then
      LmodError("expected no other SoC, found " .. loaded .. ": type module unload " .. loaded)
    end
  end
end
{{ super() }}
{% endblock %}
